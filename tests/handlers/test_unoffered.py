"""APIs whose honest answer is a refusal: access rules without an authorizer, SASL on a plain listener, features that are fixed."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.handlers.admin_world import AdminWorld, DenyAll


@pytest.mark.parametrize("version", range(1, 4))
def test_access_rules(version: int) -> None:
    world = AdminWorld()
    described = world.ask(DescribeAclsRequest(), version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    created = world.ask(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version)
    assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = world.ask(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version)
    assert [(result.error_code, result.matching_acls) for result in deleted.filter_results] == [(ErrorCode.SECURITY_DISABLED, [])]


@pytest.mark.parametrize("version", range(2))
def test_sasl_handshake(version: int) -> None:
    answer = AdminWorld().ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", range(3))
def test_sasl_authenticate(version: int) -> None:
    assert AdminWorld().ask(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version).error_code == ErrorCode.ILLEGAL_SASL_STATE


FEATURES = [
    ("transaction.version", 2, 0),
    ("transaction.version", 1, ErrorCode.FEATURE_UPDATE_FAILED),
    ("transaction.version", 9, ErrorCode.INVALID_UPDATE_VERSION),
    ("transaction.version", -1, ErrorCode.INVALID_UPDATE_VERSION),
    ("no.such", 1, ErrorCode.INVALID_UPDATE_VERSION),
]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("feature", "level", "code"), FEATURES)
def test_features(version: int, feature: str, level: int, code: int) -> None:
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature=feature, max_version_level=level)])
    answer = AdminWorld().ask(request, version)
    if version < 2:
        assert (answer.error_code, [result.error_code for result in answer.results]) == (0, [code])
    else:
        assert (answer.error_code, answer.results) == (code, [])


def test_features_need_a_right() -> None:
    assert AdminWorld(authorizer=DenyAll()).ask(UpdateFeaturesRequest()).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
