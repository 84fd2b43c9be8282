"""`ottla config describe --principal`: credentials, quotas, rules and tokens of one user, and nothing of others."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

SETTINGS = {"authorizer.class.name": "acl", "delegation.token.secret.key": "a key"}


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(settings=SETTINGS, users={"alice": "for-alice", "bob": "b"}) as broker:
        yield broker


def test_everything_about_a_user(offline: Ottla, secured: Broker) -> None:
    admin = [word for pair in secured.logins.properties().items() for word in ("-X", f"{pair[0]}={pair[1]}")]
    place = ("-b", secured.bootstrap_server, *admin)
    for line in (
        "acl add --allow-principal User:alice --operation Read --topic orders",
        "acl add --deny-principal User:* --operation Read --topic x",
        "acl add --allow-principal User:bob --operation Read --topic hidden",
        "config alter --user alice --add-config producer_byte_rate=1000",
        "config alter --user-defaults --add-config consumer_byte_rate=5",
        "config alter --user bob --add-config producer_byte_rate=7",
    ):  # fmt: skip
        assert offline(*line.split(), *place).code == 0, line
    token_id = json.loads(offline("token", "create", "--owner", "User:alice", "-o", "json", *place).out)["token_id"]
    result = offline("config", "describe", "--principal", "User:alice", "-o", "json", *place)
    rows = [(row["kind"], row["name"], row["value"]) for row in json.loads(result.out)["settings"]]
    assert rows == [
        ("credential", "SCRAM-SHA-256", "iterations=4096"),
        ("credential", "SCRAM-SHA-512", "iterations=4096"),
        ("quota", "user=alice", "producer_byte_rate=1000"),
        ("quota", "user=(default)", "consumer_byte_rate=5"),
        ("rule", "Topic orders (Literal)", "Allow Read to User:alice from *"),
        ("rule", "Topic x (Literal)", "Deny Read to User:* from *"),
        ("token", token_id, rows[-1][2]),
    ]
    assert rows[-1][2].startswith("of User:alice until ") and "for-alice" not in result.out


def test_only_users(offline: Ottla) -> None:
    refused = offline("config", "describe", "--principal", "Group:x", "-b", "127.0.0.1:1")
    assert refused.code == 2 and "write User:NAME" in refused.err
