"""Options before the command: the same as after it, refused where the command does not take them or says something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.completion import candidates
from ottla.cli.parser import OPTIONS, length_of_leading
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def test_the_broker_and_the_form_may_be_named_first(offline: Ottla, broker: Broker, topic: str) -> None:
    server = broker.bootstrap_server
    wanted = offline("topic", "describe", topic, "-b", server, "-o", "json")
    assert wanted.code == 0
    for words in (
        ("-b", server, "-o", "json", "topic", "describe", topic),
        (f"--bootstrap-server={server}", "-ojson", "topic", "describe", topic),
        ("-b", server, "topic", "describe", topic, "--output=json"),
        ("-X", f"bootstrap.servers={server}", "-q", "--output=json", "--no-color", "topic", "describe", topic),
        ("--command-property", f"bootstrap.servers={server}", "client.id=me", "topic", "describe", topic, "-o", "json"),
        ("-b", server, "-o", "json", "topic", "describe", topic, "-b", server, "-o", "json"),
    ):
        assert offline(*words) == wanted, words


def test_a_profile_and_properties_may_be_named_first(offline: Ottla, broker: Broker, tmp_path: Path) -> None:
    assert offline("profile", "create", "here", f"bootstrap.servers={broker.bootstrap_server}").code == 0
    assert offline("--profile", "here", "topic", "list").code == 0
    assert offline("--profile", "none", "topic", "list").err == offline("topic", "list", "--profile", "none").err
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    assert offline("--command-config", file, "topic", "list").code == 3
    joined = offline("--command-config", file, "-X", "client.id=a", "topic", "list", "-X", f"bootstrap.servers={broker.bootstrap_server}")
    assert joined.code == 0  # -X is joined, and is stronger than the file


def test_records_and_kafkas_tools(offline: Ottla, broker: Broker, topic: str) -> None:
    server = ("-b", broker.bootstrap_server)
    assert offline(*server, "-q", "produce", topic, "--generate", "2").out == ""
    assert [json.loads(line)["payload"] for line in offline(*server, "-o", "jsonl", "consume", topic, "-e").out.splitlines()] == [
        "record 0", "record 1",
    ]  # fmt: skip
    assert offline(*server, "kafka-get-offsets", "--topic", topic).out == f"{topic}:0:2\n"
    assert topic in offline(*server, "kafka-topics.sh", "--list").out


def test_errors_have_the_form_that_was_named_first(offline: Ottla) -> None:
    for words in (("topic", "lst"), ("topic", "list", "--nope"), ("topic", "list", "-b", "127.0.0.1:1"), ("nothing",)):
        assert json.loads(offline("-o", "json", *words).err)["error"]["name"] in ("USAGE", "NETWORK_EXCEPTION")


def test_help_and_version_after_options(offline: Ottla) -> None:
    assert offline("-q", "--help") == offline("--help")
    assert offline("-q", "--version") == offline("--version")
    assert offline("-q").code == 2
    assert offline("-b", "a:1", "topic").code == 2
    assert offline("-b", "a:1", "topic", "list", "--help") == offline("topic", "list", "--help")


def test_help_and_completion_have_every_option(offline: Ottla) -> None:
    overview, tree = offline("--help").out, offline("--help-json").json()
    described = [option["names"] for option in tree["options"]]
    for option in OPTIONS:
        assert f"  {option.names[0]}" in overview
        assert list(option.names) in described
        assert option.names[0] in candidates(["-"])


def test_completion_after_options(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.completion.DEADLINE_S", 60.0)
    assert candidates(["-b", "a:1", "topi"]) == ["topic"]
    assert candidates(["-b", "a:1", "topic", "desc"]) == ["describe"]
    assert candidates(["-o", "js"]) == ["json", "jsonl"]
    assert candidates(["-b", ""]) == []
    assert candidates(["-q", "-b", broker.bootstrap_server, "topic", "describe", topic[:-1]]) == [topic]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("topic list", 0), ("-b a topic", 2), ("-ba topic", 1), ("-qv topic", 1), ("--output=json topic", 1), ("-o", 2), ("--help", 0),
        ("--command-property a=1 b=2 topic list", 3), ("-X a=1 -X b=2 --watch 1 topic", 6), ("", 0),
    ],
)  # fmt: skip
def test_where_the_command_begins(line: str, count: int) -> None:
    assert length_of_leading(line.split()) == count
