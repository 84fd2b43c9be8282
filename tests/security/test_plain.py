"""PLAIN: which logins succeed, and that an unknown name and a wrong password cause the same answer."""

from __future__ import annotations

import pytest

from ottla.security.authentication import StepResult
from ottla.security.plain import PlainServer


def judged(token: bytes, users: dict[str, str] | None = None) -> StepResult:
    outcomes: list[StepResult] = []
    known = {"alice": "secret", "Zoë": "pässword", "empty": ""} if users is None else users
    PlainServer(lambda: known).step(token, outcomes.append)
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize(
    ("token", "principal"),
    [
        (b"\0alice\0secret", "User:alice"),
        (b"alice\0alice\0secret", "User:alice"),
        ("\0Zoë\0pässword".encode(), "User:Zoë"),
    ],
)
def test_who_is_let_in(token: bytes, principal: str) -> None:
    assert judged(token).principal == principal and judged(token).error is None


@pytest.mark.parametrize(
    "token",
    [
        b"", b"alice", b"\0alice", b"\0alice\0", b"\0\0secret", b"\0alice\0secret\0", b"\0alice\0wrong", b"\0mallory\0secret",
        b"bob\0alice\0secret", b"\0\xff\0secret", b"\0empty\0", "\0Zoe\u0308\0pässword".encode(),
    ],
)  # fmt: skip
def test_who_is_refused(token: bytes) -> None:
    outcome = judged(token)
    assert outcome.principal is None and outcome.error and "secret" not in outcome.error


def test_an_unknown_name_and_a_wrong_password_look_the_same() -> None:
    assert judged(b"\0alice\0wrong").error == judged(b"\0mallory\0wrong").error


def test_a_user_who_is_removed_is_no_longer_valid() -> None:
    users = {"alice": "secret"}
    outcome = judged(b"\0alice\0secret", users)
    assert outcome.is_valid is not None and outcome.is_valid()
    del users["alice"]
    assert not outcome.is_valid()
