"""Every way to give the command line a login, on a broker that asks for one and has access rules."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

PASSWORDS = {"alice": "comma, blank; 'quote'", "bob": "b", "carol": "c", "dave": "d"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker(settings={"authorizer.class.name": "acl"}, users=PASSWORDS) as broker:
        yield broker


@pytest.fixture
def file(guarded: Broker, tmp_path: Path) -> Path:
    """The administrator's client properties."""
    return guarded.write_java_config(tmp_path / "administrator.properties")


@pytest.fixture
def topic(guarded: Broker) -> str:
    return guarded.create_topic(f"topic-{uuid.uuid4().hex[:12]}")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_file_of_client_properties(offline: Ottla, guarded: Broker, topic: str, tmp_path: Path, mechanism: str) -> None:
    path = guarded.write_java_config(tmp_path / "f", mechanism=mechanism)
    assert topic in offline("topic", "list", "--command-config", path).out
    other = guarded.write_java_config(tmp_path / "alice", user="alice", mechanism=mechanism)
    result = offline("topic", "list", "--command-config", other)
    assert result.code == 0 and topic not in result.out


def test_properties_on_the_line_and_in_a_profile(offline: Ottla, guarded: Broker) -> None:
    names = guarded.config(user="alice")
    words = [word for name, value in names.items() for word in ("-X", f"{name}={value}")]
    assert _principal(offline, *words) == "as User:alice"
    assert offline("profile", "create", "alice", *(f"{name}={value}" for name, value in names.items())).code == 0
    assert _principal(offline, "--profile", "alice") == "as User:alice"
    assert PASSWORDS["alice"] not in offline("profile", "list", "-o", "json").out
    assert _principal(offline, "--profile", "alice", "-X", "sasl.username=bob", "-X", "sasl.password=b") == "as User:bob"


def _principal(offline: Ottla, *words: str) -> str:
    rows = offline("security", "check", *words, "-o", "json").json()["access"]
    (row,) = [row for row in rows if row["what"] == "connect"]
    assert row["may"] == "yes"
    return str(row["why"])


def test_who_is_turned_away_is_one_line_without_the_password(offline: Ottla, guarded: Broker) -> None:
    words = ("topic", "list", "-b", guarded.bootstrap_server)
    wrong = offline(*words, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.username=alice", "-X", "sasl.password=topsecret")
    warning, error = wrong.err.splitlines()
    assert wrong.code == 1 and "topsecret" not in wrong.err and warning.startswith("warning: ") and error.startswith("error: ")
    none = offline(*words)
    assert none.code == 3 and "may want a login" in none.err and len(none.err.splitlines()) == 1
    unserved = offline(*words, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=GSSAPI")
    assert unserved.code == 2 and "GSSAPI" in unserved.err


def test_records_groups_and_rules(offline: Ottla, guarded: Broker, topic: str, file: Path, tmp_path: Path) -> None:
    alice = guarded.write_java_config(tmp_path / "alice.properties", user="alice")
    values = tmp_path / "values"
    values.write_text("one\ntwo\n")
    refused = offline("produce", topic, "--file", values, "--command-config", alice)
    assert refused.code == 1 and "AUTHORIZATION" in refused.err
    for words in (("--producer", "--topic", topic), ("--consumer", "--topic", topic, "--group", f"group-{topic}")):
        assert offline("acl", "add", "--allow-principal", "User:alice", *words, "--command-config", file).code == 0
    assert offline("produce", topic, "--file", values, "--command-config", alice).code == 0
    words = ("consume", topic, "-g", f"group-{topic}", "--from-beginning", "-n", 2, "--timeout-ms", 60_000)
    assert offline(*words, "--command-config", alice).out.splitlines() == ["one", "two"]
    assert f"group-{topic}" in offline("group", "list", "--command-config", file).out
    assert "User:alice" in offline("acl", "list", "--command-config", file, "-o", "json").out


def test_kafkas_tools(offline: Ottla, guarded: Broker, topic: str, file: Path, tmp_path: Path) -> None:
    bootstrap = ("--bootstrap-server", guarded.bootstrap_server)
    where = (*bootstrap, "--command-config", file)
    assert topic in offline("kafka-topics", "--list", *where).out.splitlines()
    added = offline("kafka-configs", *where, "--alter", "--entity-type", "users", "--entity-name", "carol", "--add-config",
                    "SCRAM-SHA-256=[iterations=4096,password=c]")  # fmt: skip
    assert added.code == 0, added.err
    listed = offline("kafka-configs", *where, "--describe", "--entity-type", "users", "--entity-name", "carol")
    assert "SCRAM-SHA-256=iterations=4096" in listed.out
    offline("kafka-acls", *where, "--add", "--allow-principal", "User:carol", "--operation", "Read", "--topic", topic)
    assert "principal=User:carol" in offline("kafka-acls", *where, "--list", "--topic", topic).out
    guarded.add_record(topic, "value")
    for option in ("--consumer.config", "--command-config"):
        read = offline("kafka-console-consumer", *bootstrap, option, file, "--topic", topic, "--from-beginning", "--max-messages", 1)
        assert read.out.splitlines() == ["value"]
    measured = offline("kafka-producer-perf-test", "--producer.config", file, "--topic", topic, "--num-records", 10, "--record-size", 10,
                       "--throughput", -1, "--producer-props", f"bootstrap.servers={guarded.bootstrap_server}")  # fmt: skip
    assert measured.out.startswith("10 records sent"), measured.err


def test_checks_by_a_stock_client(offline: Ottla, file: Path) -> None:
    result = offline("check", "eos", "--only", "aborted-hidden", "--command-config", file, "-o", "json")
    assert result.json()["passed"] is True, result.err


def test_the_doctor_in_a_process_of_its_own(guarded: Broker, file: Path, topic: str) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "doctor", "--command-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "NO_COLOR": "1"})
    assert "fail  broker" not in done.stdout and done.returncode in (0, 1), done.stdout + done.stderr


@pytest.mark.parametrize(("user", "writes_elsewhere"), [("carol", False), ("dave", True)])
def test_a_refusal_to_write_reads_the_same_with_and_without_a_producer_id(
    offline: Ottla, guarded: Broker, topic: str, tmp_path: Path, file: Path, user: str, writes_elsewhere: bool
) -> None:
    """A user who may write to no topic gets no producer id (CLUSTER_AUTHORIZATION_FAILED); Produce refuses the others."""
    for name, operation in [(topic, "Read"), *([(f"{topic}-other", "Write")] if writes_elsewhere else [])]:
        rule = ("--allow-principal", f"User:{user}", "--topic", name, "--operation", operation)
        assert offline("acl", "add", *rule, "--command-config", file).code == 0
    result = offline("produce", topic, "--generate", 1, "--command-config", guarded.write_java_config(tmp_path / user, user=user))
    assert f"User:{user} may not WRITE TOPIC '{topic}'; see `ottla security check --topic {topic}`" in result.err, result
    assert ("TOPIC_AUTHORIZATION_FAILED" if writes_elsewhere else "CLUSTER_AUTHORIZATION_FAILED") in result.err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("produce UNSEEN --generate 1", "may not WRITE TOPIC 'UNSEEN'; see `ottla security check --topic UNSEEN`"),
        ("consume UNSEEN -e", "may not READ TOPIC 'UNSEEN'; see `ottla security check --topic UNSEEN`"),
        ("consume READABLE -g g-1", "may not DESCRIBE GROUP 'g-1'; see `ottla security check --group g-1`"),
        ("produce READABLE --generate 1", "may not WRITE TOPIC 'READABLE'; see `ottla security check --topic READABLE`"),
        ("topic create new", "may not CREATE TOPIC 'new'; see `ottla security check --topic new`"),
        ("topic create new-1 new-2", "may not CREATE TOPIC 'new-2'; see `ottla security check --topic new-2`"),
        ("topic delete READABLE -y", "may not DELETE TOPIC 'READABLE'; see `ottla security check --topic READABLE`"),
        ("topic trim READABLE -y", "may not DELETE TOPIC 'READABLE'; see `ottla security check --topic READABLE`"),
        ("topic add-partitions READABLE -n 1", "may not ALTER TOPIC 'READABLE'; see `ottla security check --topic READABLE`"),
        ("topic alter READABLE -c retention.ms=1d", "may not ALTER_CONFIGS TOPIC 'READABLE'; see `ottla security check --topic READABLE`"),
        ("offsets UNSEEN", "may not DESCRIBE TOPIC 'UNSEEN'; see `ottla security check --topic UNSEEN`"),
        ("acl list", "may not DESCRIBE CLUSTER 'kafka-cluster'; see `ottla security check`"),
        ("acl add --topic t --allow-principal User:b", "may not ALTER CLUSTER 'kafka-cluster'; see `ottla security check`"),
        ("user list", "may not DESCRIBE CLUSTER 'kafka-cluster'; see `ottla security check`"),
        ("user remove bob -y", "may not ALTER CLUSTER 'kafka-cluster'; see `ottla security check`"),
    ],
)
def test_a_refusal_names_user_operation_and_resource(
    offline: Ottla, guarded: Broker, topic: str, tmp_path: Path, file: Path, line: str, sentence: str
) -> None:
    readable = f"{topic}-readable"
    guarded.create_topic(readable)
    rule = ("--allow-principal", "User:alice", "--topic", readable, "--operation", "Read")
    assert offline("acl", "add", *rule, "--command-config", file).code == 0
    alice = guarded.write_java_config(tmp_path / "alice", user="alice")

    def named(text: str) -> str:
        return text.replace("UNSEEN", topic).replace("READABLE", readable)

    result = offline(*named(line).split(), "--command-config", alice)
    assert result.code == 1 and f"User:alice {named(sentence)}" in result.err, result
