"""DescribeUserScramCredentials on a broker where no user has SCRAM credentials."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.handlers.admin_world import AdminWorld, DenyAll


@pytest.mark.parametrize("users", [None, []])
def test_all_users_are_none(users: list[UserName] | None) -> None:
    answer = AdminWorld().ask(DescribeUserScramCredentialsRequest(users=users))
    assert (answer.error_code, answer.results) == (0, [])


def test_named_users() -> None:
    asked = DescribeUserScramCredentialsRequest(users=[UserName(name="a"), UserName(name="b"), UserName(name="a")])
    assert [(result.user, result.error_code) for result in AdminWorld().ask(asked).results] == [
        ("a", ErrorCode.DUPLICATE_RESOURCE),
        ("b", ErrorCode.RESOURCE_NOT_FOUND),
    ]


def test_rights() -> None:
    answer = AdminWorld(authorizer=DenyAll()).ask(DescribeUserScramCredentialsRequest(users=None))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
