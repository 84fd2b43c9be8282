"""`kafka-client-metrics`: the lines that Kafka's tool printed for the same arguments, and what it refuses."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Ottla

TOOL = "kafka-client-metrics"


def test_a_subscription_from_its_first_line_to_its_last(ottla: Ottla) -> None:
    wanted = ("--interval", "5000", "--metrics", "org.a,org.b", "--match", "client_id=a")
    assert ottla(TOOL, "--alter", "--name", "tool", *wanted) == (0, "Altered client metrics config for tool.\n", "")
    described = "Client metrics configs for tool are:\n  interval.ms=5000\n  match=client_id=a\n  metrics=org.a,org.b\n"
    assert ottla(TOOL, "--describe", "--name", "tool").out == described
    assert described in ottla(TOOL, "--describe").out
    assert "tool\n" in ottla(TOOL, "--list").out
    ottla(TOOL, "--alter", "--name", "tool", "--interval", "", "--metrics", "")
    assert ottla(TOOL, "--describe", "--name", "tool").out.splitlines()[1:] == ["  interval.ms=300000", "  match=client_id=a", "  metrics="]
    assert ottla(TOOL, "--delete", "--name", "tool").out == "Deleted client metrics config for tool.\n"
    gone = ottla(TOOL, "--describe", "--name", "tool")
    assert (gone.code, gone.out) == (0, "The client metric resource tool doesn't exist and doesn't have dynamic config.\n")
    assert ottla(TOOL, "--delete", "--name", "tool").code == 0, "Kafka's tool deletes what is not there"


def test_a_name_is_made_up(ottla: Ottla) -> None:
    name = ottla(TOOL, "--alter", "--generate-name", "--metrics", "x").out.removeprefix("Altered client metrics config for ")[:-2]
    assert len(name) == 22 and f"{name}\n" in ottla(TOOL, "--list").out
    ottla(TOOL, "--delete", "--name", name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--interval", "1"), "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        (("--match", "foo=1"), "Illegal client matching pattern: foo=1"),
    ],
)
def test_a_refusal(ottla: Ottla, words: tuple[str, ...], message: str) -> None:
    refused = ottla(TOOL, "--alter", "--name", "refused", *words)
    assert (refused.code, refused.out) == (1, f"Error while executing client metrics command : {message}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "exactly one action: --alter, --delete, --describe or --list"),
        (("--alter",), "One of --name or --generate-name must be specified with --alter."),
        (("--alter", "--name", "x", "--generate-name"), "One of --name or --generate-name must be specified with --alter."),
        (("--delete",), "A client metrics resource name must be specified with --delete."),
        (("--list", "--name", "x"), 'Option "[list]" can\'t be used with option "[name]"'),
        (("--describe", "--interval", "1"), 'Option "[describe]" can\'t be used with option "[interval]"'),
    ],
)
def test_wrong_usage_is_one_line(offline: Ottla, words: tuple[str, ...], message: str) -> None:
    refused = offline(TOOL, *words)
    assert refused.code == 2 and message in refused.err and refused.err.count("\n") == 1 and not refused.out
