"""Quotas of users, clients and addresses over the wire, and SCRAM credentials, which our broker does not store."""

from __future__ import annotations

import json
import uuid

import pytest

from ottla.cli.cluster.config_quotas import parse_credential
from tests.cli.conftest import Ottla


@pytest.fixture
def user() -> str:
    return f"user-{uuid.uuid4().hex[:8]}"


def quotas(ottla: Ottla, *words: str) -> dict[str, str]:
    rows = json.loads(ottla("config", "describe", *words, "-o", "json").out)["configs"]
    return {f"{row['entity_type']} {row['entity_name']} {row['key']}": row["value"] for row in rows}


def test_set_show_and_remove(ottla: Ottla, user: str) -> None:
    done = ottla("config", "alter", "--user", user, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    assert (done.code, done.out) == (0, f"Completed updating config for user {user}.\n")
    assert done.err == ""
    assert quotas(ottla, "--user", user) == {f"users {user} producer_byte_rate": "1024.0", f"users {user} request_percentage": "12.5"}
    assert ottla("config", "alter", "--user", user, "--delete-config", "producer_byte_rate").code == 0
    assert quotas(ottla, "--user", user) == {f"users {user} request_percentage": "12.5"}
    again = ottla("config", "alter", "--user", user, "--delete-config", "producer_byte_rate")
    assert (again.code, again.err.count("\n")) == (1, 1)


def test_a_dry_run_changes_no_quota(ottla: Ottla, user: str) -> None:
    tried = ottla("config", "alter", "--user", user, "--add-config", "producer_byte_rate=1", "--dry-run", "-o", "json")
    assert json.loads(tried.out)["dry_run"] is True
    assert quotas(ottla, "--user", user) == {}


def test_users_with_clients_and_defaults(ottla: Ottla, user: str) -> None:
    pairs = ("--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-default")
    assert ottla("config", "alter", *pairs, "--add-config", "consumer_byte_rate=7").code == 0
    assert ottla("config", "alter", "--user", user, "--client", "app", "--add-config", "consumer_byte_rate=8").code == 0
    both = "clients,users"
    everywhere = {f"{both} (default),{user} consumer_byte_rate": "7.0", f"{both} app,{user} consumer_byte_rate": "8.0"}
    assert quotas(ottla, "--entity-type", "users", "--entity-name", user, "--entity-type", "clients") == everywhere
    assert quotas(ottla, "--user", user, "--client-defaults") == {f"{both} (default),{user} consumer_byte_rate": "7.0"}
    assert quotas(ottla, "--user", user) == {}
    shim = ottla("kafka-configs", "--describe", "--user", user, "--client-defaults")
    assert shim.out == f"Quota configs for user-principal '{user}', the default client-id are consumer_byte_rate=7.0\n"


def test_addresses(ottla: Ottla) -> None:
    assert ottla("config", "alter", "--ip", "192.0.2.1", "--add-config", "connection_creation_rate=5").code == 0
    assert quotas(ottla, "--ip", "192.0.2.1") == {"ips 192.0.2.1 connection_creation_rate": "5.0"}
    assert ottla("config", "alter", "--ip", "192.0.2.1", "--delete-config", "connection_creation_rate").code == 0
    assert quotas(ottla, "--entity-type", "ips") == {}


@pytest.mark.parametrize(
    "change",
    ["producer_byterate=1", "producer_byte_rate=fast", "producer_byte_rate=0", "producer_byte_rate=nan", "connection_creation_rate=5"],
)
def test_quotas_that_make_no_sense(ottla: Ottla, user: str, change: str) -> None:
    result = ottla("config", "alter", "--user", user, "--add-config", change)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert quotas(ottla, "--user", user) == {}


def test_credentials_are_set_as_kafkas_tool_sets_them(ottla: Ottla, user: str) -> None:
    result = ottla("config", "alter", "--user", user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]", "-o", "json")
    assert result.code == 0 and "secret" not in result.out + result.err
    assert "iterations=8192" in ottla("config", "describe", "--user", user).out
    assert ottla("config", "alter", "--user", user, "--delete-config", "SCRAM-SHA-256").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--user", "a", "--add-config", "SCRAM-SHA-256=[password=x],producer_byte_rate=1"),
        ("--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=1,password=x]"),
        ("--user", "a", "--add-config", "SCRAM-SHA-256=x"),
        ("--user-defaults", "--add-config", "SCRAM-SHA-256=[password=x]"),
        ("--client", "a", "--add-config", "SCRAM-SHA-256=[password=x]"),
    ],
)
def test_credentials_that_make_no_sense(ottla: Ottla, words: tuple[str, ...]) -> None:
    result = ottla("config", "alter", *words)
    assert result.code == 2
    assert [line.partition(":")[0] for line in result.err.splitlines()] == ["warning", "error"], "the password is among the arguments"


def test_a_credential_as_kafka_writes_it() -> None:
    assert parse_credential("SCRAM-SHA-512", "iterations=8192,password=a,b=c") == ("a,b=c", 8192)
    assert parse_credential("SCRAM-SHA-256", "password=x") == ("x", 4096)
