"""Settings over the wire, and files checked without a broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.cli.cluster.config_entities import parse_credential
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.clients.certificates import Authority


def test_set_show_and_reset(ottla: Ottla, topic: str) -> None:
    words = ("--entity-type", "topics", "--entity-name", topic)
    assert ottla("config", "alter", *words, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]").code == 0
    shown = ottla("config", "describe", "--topic", topic, "-o", "json").json()["configs"]
    assert {entry["key"]: entry["value"] for entry in shown} == {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
    assert ottla("config", "alter", "--topic", topic, "--delete-config", "retention.ms,cleanup.policy").code == 0
    assert ottla("config", "describe", "--topic", topic, "-o", "json").json()["configs"] == []
    everything = ottla("config", "describe", "--topic", topic, "--all", "-o", "json").json()["configs"]
    assert len(everything) > 20


def test_a_dry_run_changes_nothing(ottla: Ottla, topic: str) -> None:
    result = ottla("config", "alter", "--topic", topic, "--add-config", "retention.ms=5", "--dry-run", "-o", "json")
    assert result.json()["dry_run"] is True
    assert ottla("config", "describe", "--topic", topic, "-o", "json").json()["configs"] == []


def test_settings_from_a_file(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "more.properties"
    file.write_text("# a comment\nsegment.bytes = 2097152\n")
    assert ottla("config", "alter", "--topic", topic, "--add-config-file", file).code == 0
    assert "2097152" in ottla("config", "describe", "--topic", topic).out


def test_refusals(ottla: Ottla, topic: str) -> None:
    bad_value = ottla("config", "alter", "--topic", topic, "--add-config", "retention.ms=soon", "-o", "json")
    assert (bad_value.code, json.loads(bad_value.err)["error"]["name"]) == (1, "INVALID_CONFIG")
    unknown = ottla("config", "describe", "--topic", topic[:-1])
    assert unknown.code == 1
    assert f"did you mean '{topic}'" in unknown.err


CHECKED = """
num.partitons=3
process.roles=broker,controller
client.users=admin
log.retention.hours=24
"""


def test_a_file_is_checked_as_the_broker_would(offline: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(CHECKED)
    found = offline("config", "check", file, "-o", "json").json()
    texts = {notice["message"]: notice["level"] for notice in found["notices"]}
    assert found["ok"] is True
    assert any("num.partitons" in text and "num.partitions" in text and level == "warning" for text, level in texts.items())
    assert any("process.roles" in text and level == "info" for text, level in texts.items())
    assert not any("log.retention.hours" in text for text in texts)
    warnings = sum(level == "warning" for level in texts.values())
    assert found["warnings"] == warnings > 1
    usable = offline("config", "check", file)
    assert (usable.code, usable.out) == (0, f"{file} is usable, {warnings} warnings.\n")
    assert offline("config", "check", file, "--strict").code == 1
    strict = offline("config", "check", file, "--strict", "-o", "json").json()
    assert (strict["ok"], strict["warnings"]) == (False, warnings)
    file.write_text("num.partitions=3\n")
    fine = offline("config", "check", file, "--strict")
    assert (fine.code, fine.out) == (0, f"{file} is fine.\n")
    file.write_text("num.partitons=3\n")
    assert offline("config", "check", file).out == f"{file} is usable, 1 warning.\n"


def test_a_broker_that_could_get_no_token_for_the_others_is_refused(offline: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    text = (
        "zookeeper.connect=z:2181\nbroker.id=1\nlisteners=SASL_PLAINTEXT://:9092\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n"
        "sasl.enabled.mechanisms=OAUTHBEARER\nsasl.mechanism.inter.broker.protocol=OAUTHBEARER\n"
        "sasl.oauthbearer.jwks.endpoint.url=https://issuer.test/keys\n"
        "sasl.oauthbearer.expected.audience=kafka\nsasl.oauthbearer.expected.issuer=https://issuer.test\n"
        "sasl.oauthbearer.token.endpoint.url=https://issuer.test/token\n"
    )
    file.write_text(text)
    refused = offline("config", "check", str(file))
    assert refused.code == 1 and "error: listener SASL_PLAINTEXT: sasl.oauthbearer.token.endpoint.url needs a client id" in refused.err
    client = "sasl.oauthbearer.client.credentials.client"
    file.write_text(f"{text}{client}.id=a\n{client}.secret=b\n")
    assert offline("config", "check", str(file)).code == 0


def test_settings_of_listeners_and_a_jaas_file_are_checked(offline: Ottla, tmp_path: Path) -> None:
    file, jaas = tmp_path / "server.properties", tmp_path / "jaas.conf"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    listener = "listeners=SASL_PLAINTEXT://localhost:9093\nsasl.enabled.mechanisms=PLAIN\n"
    file.write_text(f'{listener}listener.name.sasl_plaintext.plain.sasl.jaas.config={plain} user_a="b";\nottla.sasl.plain.users.c=d\n')
    assert offline("config", "check", file).out == f"{file} is fine.\n"
    file.write_text(f"{listener}listener.name.sasl_plaintext.ssl.client.auth=perhaps\n")
    assert "ssl.client.auth" in offline("config", "check", file).err
    file.write_text(f"{listener}java.security.auth.login.config={jaas}\n")
    missing = offline("config", "check", file)
    assert missing.code == 1 and f"cannot read {jaas}: No such file" in missing.err and missing.err.count("\n") == 1
    jaas.write_text(f'KafkaServer {{ {plain} user_a="b"; }};')
    assert offline("config", "check", file).out == f"{file} is fine.\n"


def test_the_certificates_of_a_file_are_looked_at(offline: Ottla, tmp_path: Path, need_program: Callable[[str], str]) -> None:
    keystore, file = Authority(tmp_path, need_program).issue("broker"), tmp_path / "server.properties"
    file.write_text(f"listeners=SSL://:9093\nssl.keystore.location={keystore}\n")
    ends = offline("config", "check", file)
    assert ends.code == 0 and "warning: listener SSL: the certificate of ssl.keystore.* ends in 1 day, on " in ends.err
    assert ends.out == f"{file} is usable, 1 warning.\n"
    keystore.unlink()
    refused = offline("config", "check", file)
    assert refused.code == 1 and f"error: listener SSL: cannot read ssl.keystore.location={keystore}: No such file" in refused.err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.properties", "num.partitions=many\n", "num.partitions"),
        ("a.properties", "log.dirs=\\u12\n", "malformed"),
        ("a.toml", "num.partitions = [\n", "not valid TOML"),
        ("a.toml", "num.partitions = 'x'\n", "num.partitions"),
    ],
)
def test_a_file_that_the_broker_would_refuse(offline: Ottla, tmp_path: Path, name: str, text: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    result = offline("config", "check", file, "-o", "json")
    assert result.code == 1
    error = json.loads(result.err)["error"]
    assert error["name"] == "INVALID_CONFIG"
    assert message in error["message"]


def test_all_errors_of_a_file_are_reported_at_once(offline: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "a.properties"
    file.write_text("num.partitons=3\nnum.partitions=x\nlog.retention.hours=y\nbroker.id=1\nnode.id=2\n")
    result = offline("config", "check", file)
    assert result.code == 1
    levels = [line.partition(": ")[0] for line in result.err.splitlines()]
    assert levels == ["warning", "error", "error", "error"]
    found = offline("config", "check", file, "-o", "json").json()
    assert found["ok"] is False and [row["level"] for row in found["notices"]] == levels


def test_nested_toml_and_the_environment(offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[log]\nretention.hours = 5\n[num]\npartitions = 3\n")
    assert offline("config", "check", file, "-o", "json").json()["notices"] == []
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "many")
    assert offline("config", "check", file).code == 0
    assert offline("config", "check", file, "--environment").code == 1


def test_defaults(offline: Ottla) -> None:
    rows = {row["key"]: row for row in offline("config", "defaults", "-o", "json").json()["settings"]}
    assert rows["num.partitions"]["default"] == "1"
    assert all(row["doc"] for row in rows.values())
    assert len(offline("config", "defaults", "--scope", "topic", "retention.ms", "-o", "json").json()["settings"]) == 1
    nearest = offline("config", "defaults", "num.partition")
    assert "did you mean 'num.partitions'" in nearest.err


# `ottla config describe --principal`: credentials, quotas, rules and tokens of one user, and nothing of others


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
    token_id = offline("token", "create", "--owner", "User:alice", "-o", "json", *place).json()["token_id"]
    result = offline("config", "describe", "--principal", "User:alice", "-o", "json", *place)
    rows = [(row["kind"], row["name"], row["value"]) for row in result.json()["settings"]]
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


# Quotas of users, clients and addresses over the wire, and SCRAM credentials, which our broker does not store


@pytest.fixture
def user() -> str:
    return f"user-{uuid.uuid4().hex[:8]}"


def quotas(ottla: Ottla, *words: str) -> dict[str, str]:
    rows = ottla("config", "describe", *words, "-o", "json").json()["configs"]
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
    assert tried.json()["dry_run"] is True
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
