"""Kafka's tools by their names: which is meant, and what is refused; their output is compared in tests/clients."""

from __future__ import annotations

import pytest

from ottla.cli.kafka_tools.tools import NOT_OFFERED, TOOLS, find
from ottla.cli.main import main
from tests.cli.conftest import Ottla


@pytest.mark.parametrize("suffix", ["", ".sh", ".bat"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_is_found_by_its_name_and_by_its_files(tool: str, suffix: str) -> None:
    assert find([f"{tool}{suffix}", "--list"]) == (tool, ["--list"])


@pytest.mark.parametrize(("tool", "name"), [(tool, name) for tool, found in TOOLS.items() for name in found.classes])
def test_a_tool_is_found_by_each_of_its_classes(tool: str, name: str) -> None:
    assert find(["kafka-run-class.sh", "-daemon", "-name", "x", name, "--topic", "t"]) == (tool, ["--topic", "t"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["kafka-topic"], "no tool 'kafka-topic' here; did you mean 'kafka-topics'? See `ottla shims list`."),
        (["kafka-run-class"], "name a class"),
        (["kafka-run-class", "kafka.tools.GetOffsetShel"], "did you mean 'kafka.tools.GetOffsetShell'"),
        (["kafka-topics", "--list", "--create"], "exactly one action: --list, --describe, --create, --alter or --delete"),
        (["kafka-topics", "--describe", "--topic", "a", "--topic", "b"], "found multiple arguments for option topic"),
        (["kafka-topics", "--create"], 'Missing required argument "[topic]"'),
        (["kafka-consumer-groups", "--list", "--state", "Nonsense"], "Invalid state list 'Nonsense'. Valid states are: "),
        (["kafka-consumer-groups", "--reset-offsets", "--group", "g", "--to-latest"], "give topics"),
        (["kafka-consumer-groups", "--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--to-current"], "exclude each other"),
        (["kafka-configs", "--topic", "t"], "exactly one action: --describe, --alter"),
        (["kafka-log-dirs"], 'Missing required argument "[describe]"'),
        (["kafka-transactions", "--bootstrap-server", "list"], "kafka-transactions needs one of list, describe"),
        (["kafka-reassign-partitions", "--generate"], "required: --topics-to-move-json-file, --broker-list"),
        (["kafka-reassign-partitions", "--list", "--verify"], "exactly one action"),
        (["kafka-server-start", "-daemon"], "kafka-server-start [-daemon] FILE"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert main(argv) == 2
    seen = capsys.readouterr()
    assert seen.out == "" and message in seen.err and seen.err.count("\n") == 1


@pytest.mark.parametrize("tool", [*NOT_OFFERED])
def test_tools_that_are_not_offered_are_refused_in_one_line(capsys: pytest.CaptureFixture[str], tool: str) -> None:
    assert main([f"{tool}.sh", "--describe"]) == 1
    assert capsys.readouterr().err == f"error: {tool} is not offered: {NOT_OFFERED[tool]}\n"


@pytest.mark.parametrize("name", ["zookeeper-server-start", "connect-standalone.sh", "trogdor", "kafka-verifiable-producer"])
def test_tools_that_are_not_here_say_so_in_one_line(offline: Ottla, name: str) -> None:
    refused = offline(name, "config/any.properties")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)


def test_a_broker_that_is_away_is_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-topics.sh", "--list", "--bootstrap-server", "127.0.0.1:1"]) == 3
    assert "cannot reach" in capsys.readouterr().err


def test_the_version_has_kafkas_level_first(offline: Ottla) -> None:
    for tool in (("kafka-topics",), ("kafka-transactions",), ("kafka-run-class", "kafka.tools.GetOffsetShell")):
        assert offline(*tool, "--version").out.startswith("4.4.0 (Ottla ")
