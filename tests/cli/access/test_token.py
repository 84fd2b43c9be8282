"""`ottla token` on a broker with users: made, listed, renewed and ended without a secret as an argument."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla, Result
from tests.cli.every_command import EXAMPLES


@pytest.fixture(scope="module")
def logins() -> Iterator[Broker]:
    with Broker(settings={"delegation.token.secret.key": "a key"}, users={"alice": "a", "bob": "b"}) as broker:
        yield broker


@pytest.fixture
def token(offline: Ottla, logins: Broker) -> Ottla:
    """`token("bob", "list")`: as that user."""

    def run(user: str, *words: object) -> Result:
        login = (f"sasl.username={user}", f"sasl.password={user[0]}", "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")
        options = [word for pair in login for word in ("-X", pair)]
        return offline("token", *words, "-b", logins.bootstrap_server, *options)

    return run


def test_a_token_from_its_making_to_its_end(token: Ottla) -> None:
    made = token("alice", "create", "--renewer", "User:bob", "--lifetime", "P1D", "-o", "json").json()

    def listed(user: str, *words: str) -> list[dict[str, Any]]:
        """The rows of this token; other tests leave some of theirs."""
        rows = token(user, "list", *words, "-o", "json").json()["tokens"]
        return [row for row in rows if row["token_id"] == made["token_id"]]

    assert len(base64.b64decode(made["hmac"])) == 64 and made["owner"] == "User:alice" and made["renewers"] == ["User:bob"]
    (row,) = listed("bob", "--owner", "User:alice")
    assert row["expires"] == made["at_the_latest"] and "hmac" not in row
    assert listed("alice", "--show-hmac")[0]["hmac"] == made["hmac"]
    renewed = token("bob", "renew", made["token_id"], "--for", "PT1H")
    assert renewed.code == 0 and listed("alice")[0]["expires"] < made["expires"]
    assert token("alice", "expire", made["token_id"], "--yes").code == 0
    assert listed("alice") == []


def test_a_refusal_says_who_may(ottla: Ottla) -> None:
    """The broker's answer to a listing has a code and no message."""
    refused = ottla("token", "list")
    assert refused.code == 1 and refused.err.count("\n") == 1 and "log in with a password or a certificate" in refused.err


def test_refusals_are_one_line(token: Ottla) -> None:
    for words, reason in (
        (("renew", "unknown"), "there is no token unknown"), (("create", "--owner", "bob"), "write User:bob"),
        (("create", "--lifetime", "PT0S"), "must be greater than 0"), (("create", "--renewer", "Group:x"), "INVALID_PRINCIPAL_TYPE"),
    ):  # fmt: skip
        refused = token("alice", *words)
        errors = [line for line in refused.err.splitlines() if not line.startswith("warning: the list of processes")]
        assert refused.code != 0 and len(errors) == 1 and reason in errors[0], refused


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("token ")])
def test_examples_run(token: Ottla, name: str) -> None:
    known = token("alice", "create", "-o", "json").json()["token_id"]
    for example in EXAMPLES[name]:
        assert example.needs == "login"
        result = token("alice", *shlex.split(example.line.replace("Sb0F5mSbQ0C6JdSBqkIK9A", known))[2:])
        assert result.code == example.code, result
