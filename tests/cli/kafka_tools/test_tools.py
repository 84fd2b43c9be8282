"""Kafka's tools by their names: which is meant, and what is refused; their output is compared in tests/clients."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.kafka_tools.tools import NOT_OFFERED, TOOLS, find
from ottla.cli.kafka_tools.usage import java_error, plain_message
from ottla.cli.main import main
from ottla.testing.broker import Broker
from tests.cli.access.conftest import acl, guarded
from tests.cli.conftest import Ottla


@pytest.mark.parametrize("suffix", ["", ".sh", ".bat"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_is_found_by_its_name_and_by_its_files(tool: str, suffix: str) -> None:
    assert find([f"{tool}{suffix}", "--list"]) == (tool, ["--list"])


@pytest.mark.parametrize(("tool", "name"), [(tool, name) for tool, found in TOOLS.items() for name in found.classes])
def test_a_tool_is_found_by_each_of_its_classes(tool: str, name: str) -> None:
    assert find(["kafka-run-class.sh", "-daemon", "-name", "x", name, "--topic", "t"]) == (tool, ["--topic", "t"])


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


# `kafka-cluster unregister`: what it prints for brokers that are not registered and for a running broker


def test_the_request_is_sent_and_its_refusal_printed(ottla: Ottla) -> None:
    unknown = ottla("kafka-cluster", "unregister", "--id", "77")
    text = "org.apache.kafka.common.errors.BrokerIdNotRegisteredException: Broker ID 77 is not currently registered\n"
    assert (unknown.code, unknown.out, unknown.err.count("\n")) == (1, "", 1) and unknown.err.endswith(text)


def test_a_running_broker_is_not_unregistered(ottla: Ottla) -> None:
    listed = ottla("kafka-cluster", "list-endpoints").out
    running = listed.splitlines()[1].split()[0]
    refused = ottla("kafka-cluster", "unregister", "--id", running)
    assert refused.code == 1 and "is running and cannot be unregistered" in refused.err
    assert ottla("kafka-cluster", "list-endpoints").out == listed


# `kafka-consumer-groups` without a broker; with one, tests/clients compares it


@pytest.mark.parametrize(
    ("pattern", "verdict"),
    [
        ("orders-.*", "valid"),
        ("a(?=b)", "invalid: invalid or unsupported Perl syntax"),
        (r"(a)\1", r"invalid: invalid escape sequence: `\1`"),
        ("a[", "invalid: missing ]: `[`"),
        ("(?<name>a)", "valid"),
    ],
)
def test_regular_expressions_are_judged_as_groups_take_them(offline: Ottla, pattern: str, verdict: str) -> None:
    message = offline("kafka-consumer-groups", "--bootstrap-server", "h:1", "--validate-regex", pattern).out
    assert message == f"The regular expression `{pattern}` is {verdict}.\n"


# `kafka-delegation-tokens`: what Kafka's tool refuses; tests/clients compares the rest with that program itself


# Refusals in the words of Kafka's tools


def test_refusals_in_the_words_that_scripts_look_for() -> None:
    refused = ApiError(ErrorCode.NON_EMPTY_GROUP, "group 'g'")
    assert java_error(refused) == "org.apache.kafka.common.errors.GroupNotEmptyException: The group is not empty."
    assert java_error(ApiError(ErrorCode.INVALID_CONFIG, "no")) == "INVALID_CONFIG: no"
    assert plain_message(ApiError(ErrorCode.INVALID_CONFIG, "topic 't': Unknown: x")) == "Unknown: x"
    assert plain_message(ApiError(ErrorCode.INVALID_CONFIG, "Unknown: 'x': y")) == "Unknown: 'x': y"


# `ottla shims`: scripts with the names of Kafka's tools


def test_install_writes_scripts_that_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shims", "install", str(tmp_path / "bin")]) == 0
    assert main(["shims", "install", str(tmp_path / "bin")]) == 0, "our own files may be written again"
    capsys.readouterr()
    names = sorted(path.name for path in (tmp_path / "bin").iterdir())
    assert names == sorted([f"{tool}.sh" for tool in (*TOOLS, *NOT_OFFERED)] + ["kafka-run-class.sh"])
    script = tmp_path / "bin" / "kafka-storage.sh"
    assert os.access(script, os.X_OK)
    done = subprocess.run([script, "random-uuid"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and len(done.stdout) == 23, done.stderr


def test_install_leaves_the_files_of_others_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "kafka-topics.sh"
    theirs.write_text("#!/bin/bash\n")
    assert main(["shims", "install", str(tmp_path)]) == 1
    assert "exists and was not written by this command; --force overwrites it" in capsys.readouterr().err
    assert theirs.read_text() == "#!/bin/bash\n" and len(list(tmp_path.iterdir())) == 1
    assert main(["shims", "install", "--force", str(tmp_path)]) == 0
    assert "ottla" in theirs.read_text()


def test_scripts_of_every_tool_are_written(offline: Ottla, tmp_path: Path) -> None:
    assert offline("shims", "install", tmp_path).code == 0
    assert {"kafka-topics.sh", "kafka-run-class.sh", "kafka-acls.sh", "zookeeper-server-start.sh"} <= set(os.listdir(tmp_path))


# `kafka-client-metrics`: the lines that Kafka's tool printed for the same arguments, and what it refuses


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


# `kafka-acls`: the lines of Kafka's AclCommand; tests/clients compares them with that program itself


__all__ = ["acl", "guarded"]

PATTERN = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
READ = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
SECURITY_DISABLED = "org.apache.kafka.common.errors.SecurityDisabledException: No Authorizer is configured on the broker"
ADD = ("kafka-acls", "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")


def test_rules_are_added_listed_and_removed(acl: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    assert acl(*ADD).out == f"Adding ACLs for resource `{PATTERN}`: \n \t{READ}\n\n"
    assert acl(*ADD).out == f"Acl (pattern={PATTERN}, entry={READ}) already exists.\n"
    shown = f"Current ACLs for resource `{PATTERN}`:\n\t{READ}\n\n"
    assert acl("kafka-acls", "--list").out == shown == acl("kafka-acls", "--list", "--topic", "orders").out
    by_principal = acl("kafka-acls", "--list", "--principal", "User:bob", "--principal", "User:alice").out
    assert by_principal == f"ACLs for principal `User:bob`\nACLs for principal `User:alice`\n{shown}"
    remove = ("kafka-acls", "--remove", *ADD[2:])
    question = f"Are you sure you want to remove ACLs: \n \t{READ}\n from resource filter `{PATTERN}`? (y/n)\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nY\n"))
    assert acl(*remove).out == question and acl("kafka-acls", "--list").out == shown
    assert acl(*remove).out == question and acl("kafka-acls", "--list").out == ""
    acl(*ADD)
    all_of = ("kafka-acls", "--remove", "--topic", "orders")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert acl(*all_of).out == f"Are you sure you want to delete all ACLs for resource filter `{PATTERN}`? (y/n)\n"
    assert acl(*all_of, "--force").out == "" and acl("kafka-acls", "--list").out == ""


def test_a_controllers_address_is_a_brokers(offline: Ottla, guarded: Broker, acl: Ottla) -> None:
    acl(*ADD)
    listed = offline("kafka-acls", "--list", "--bootstrap-controller", guarded.bootstrap_server)
    assert (listed.code, listed.out) == (0, f"Current ACLs for resource `{PATTERN}`:\n\t{READ}\n\n")


def test_a_refusal_of_the_broker_is_kafkas_line(ottla: Ottla) -> None:
    refused = ottla("kafka-acls", "--list")
    assert (refused.code, refused.out) == (1, f"Error while executing ACL command: {SECURITY_DISABLED}\n")
