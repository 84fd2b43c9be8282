"""Settings over the wire, and files checked without a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ottla
from tests.clients.certificates import Authority


def test_set_show_and_reset(ottla: Ottla, topic: str) -> None:
    words = ("--entity-type", "topics", "--entity-name", topic)
    assert ottla("config", "alter", *words, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]").code == 0
    shown = json.loads(ottla("config", "describe", "--topic", topic, "-o", "json").out)["configs"]
    assert {entry["key"]: entry["value"] for entry in shown} == {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
    assert ottla("config", "alter", "--topic", topic, "--delete-config", "retention.ms,cleanup.policy").code == 0
    assert json.loads(ottla("config", "describe", "--topic", topic, "-o", "json").out)["configs"] == []
    everything = json.loads(ottla("config", "describe", "--topic", topic, "--all", "-o", "json").out)["configs"]
    assert len(everything) > 20


def test_a_dry_run_changes_nothing(ottla: Ottla, topic: str) -> None:
    result = ottla("config", "alter", "--topic", topic, "--add-config", "retention.ms=5", "--dry-run", "-o", "json")
    assert json.loads(result.out)["dry_run"] is True
    assert json.loads(ottla("config", "describe", "--topic", topic, "-o", "json").out)["configs"] == []


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


@pytest.mark.parametrize(
    "words",
    [
        ("describe",),
        ("describe", "--topic", "a", "--broker", "1"),
        ("describe", "--entity-type", "topic"),
        ("describe", "--broker", "one"),
        ("alter", "--topic", "a"),
        ("alter", "--topic", "a", "--add-config", "x"),
        ("alter", "--topic", "a", "--add-config", "x=1", "--delete-config", "x"),
        ("alter", "--entity-type", "topics", "--add-config", "x=1"),
        ("alter", "--topic", "a", "--add-config", "x=1", "--add-config-file", "no-such-file"),
        ("describe", "--entity-type", "users", "--user", "a"),
        ("describe", "--entity-name", "a"),
        ("describe", "--entity-type", "users", "--entity-name", "a", "--entity-name", "b"),
        ("describe", "--user", "a", "--topic", "t"),
        ("describe", "--topic", ""),
        ("describe", "--ip", "no such host"),
        ("check", "no-such-file"),
        ("defaults", "num.partition"),
    ],
)
def test_wrong_usage(ottla: Ottla, offline: Ottla, words: tuple[str, ...]) -> None:
    result = (offline if words[0] in ("check", "defaults") else ottla)("config", *words)
    assert (result.code, result.err.count("\n")) == (2, 1)


CHECKED = """
num.partitons=3
process.roles=broker,controller
client.users=admin
log.retention.hours=24
"""


def test_a_file_is_checked_as_the_broker_would(offline: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(CHECKED)
    found = json.loads(offline("config", "check", file, "-o", "json").out)
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
    strict = json.loads(offline("config", "check", file, "--strict", "-o", "json").out)
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
    found = json.loads(offline("config", "check", file, "-o", "json").out)
    assert found["ok"] is False and [row["level"] for row in found["notices"]] == levels


def test_nested_toml_and_the_environment(offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[log]\nretention.hours = 5\n[num]\npartitions = 3\n")
    assert json.loads(offline("config", "check", file, "-o", "json").out)["notices"] == []
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "many")
    assert offline("config", "check", file).code == 0
    assert offline("config", "check", file, "--environment").code == 1


def test_defaults(offline: Ottla) -> None:
    rows = {row["key"]: row for row in json.loads(offline("config", "defaults", "-o", "json").out)["settings"]}
    assert rows["num.partitions"]["default"] == "1"
    assert all(row["doc"] for row in rows.values())
    assert len(json.loads(offline("config", "defaults", "--scope", "topic", "retention.ms", "-o", "json").out)["settings"]) == 1
    nearest = offline("config", "defaults", "num.partition")
    assert "did you mean 'num.partitions'" in nearest.err
