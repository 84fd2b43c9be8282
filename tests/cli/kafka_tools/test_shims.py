"""Kafka's tools by their names: which is meant, what a line becomes, what is refused; their output is compared in tests/clients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import Command, UsageError
from ottla.cli.kafka_tools import translations
from ottla.cli.kafka_tools.shims import NOT_OFFERED, TOOLS, Translation, find, java_error, plain_message
from ottla.cli.main import main
from tests.cli.conftest import Ottla

BOOTSTRAP = ["--bootstrap-server", "h:1"]


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
        (["kafka-topic"], "no tool 'kafka-topic' here; did you mean 'kafka-topics'?; see `ottla shims list`"),
        (["kafka-run-class"], "name a class"),
        (["kafka-run-class", "kafka.tools.GetOffsetShel"], "did you mean 'kafka.tools.GetOffsetShell'"),
        (["kafka-topics", "--list", "--create"], "exactly one action: --list, --describe, --create, --alter or --delete"),
        (["kafka-topics", "--describe", "--topic", "a", "--topic", "b"], "found multiple arguments for option topic"),
        (["kafka-topics", "--create"], 'Missing required argument "[topic]"'),
        (["kafka-consumer-groups", "--list", "--state", "Nonsense"], "Invalid state list 'Nonsense'. Valid states are: "),
        (["kafka-consumer-groups", "--reset-offsets", "--group", "g", "--to-latest"], "say which topics"),
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


@pytest.mark.parametrize("tool", ["kafka-topics", "kafka-configs", "kafka-consumer-groups"])
def test_zookeeper_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], tool: str) -> None:
    assert main([tool, "--zookeeper", "localhost:2181/chroot", "--list"]) == 1
    assert capsys.readouterr().err == (
        f"error: {tool} --zookeeper needs the cluster's ZooKeeper, which this broker does without;"
        " say --bootstrap-server HOST:PORT instead\n"
    )


@pytest.mark.parametrize("tool", [*NOT_OFFERED])
def test_tools_that_are_not_offered_say_so_in_one_line(capsys: pytest.CaptureFixture[str], tool: str) -> None:
    assert main([f"{tool}.sh", "--describe"]) == 1
    assert capsys.readouterr().err == f"error: {tool} is not offered: {NOT_OFFERED[tool]}\n"


@pytest.mark.parametrize(
    ("tool", "line", "wanted"),
    [
        ("kafka-console-producer", "--broker-list h:1 --topic t", "produce --bootstrap-server h:1 --topic t"),
        ("kafka-console-consumer", "--bootstrap-server h:1 --whitelist t.*", "consume --bootstrap-server h:1 --whitelist t.*"),
        ("kafka-get-offsets", "--broker-list=h:1 --time -2", "offsets -o plain --bootstrap-server=h:1 --time -2"),
        ("kafka-log-dirs", "--describe --broker-list 0,1", "logdirs --describe --broker-list 0,1"),
        ("kafka-delete-records", "--offset-json-file f", "records delete --yes --offset-json-file f"),
        ("kafka-dump-log", "--files 0.log", "log dump --files 0.log"),
        (
            "kafka-configs",
            "--alter --broker-defaults --add-config a=1",
            "config alter --broker-defaults --add-config a=1",
        ),
        ("kafka-transactions", "--bootstrap-server h:1 list", "txn list --bootstrap-server h:1"),
        ("kafka-transactions", "abort --topic t", "txn abort --yes --topic t"),
        ("kafka-features", "--bootstrap-server h:1 describe", "features describe --bootstrap-server h:1"),
        ("kafka-cluster", "cluster-id --bootstrap-server h:1", "cluster cluster-id --bootstrap-server h:1"),
        ("kafka-broker-api-versions", "--bootstrap-server h:1", "cluster api-versions --bootstrap-server h:1"),
        ("kafka-producer-perf-test", "--topic t", "bench producer --topic t"),
        ("kafka-consumer-perf-test", "--broker-list h:1 --messages 5", "bench consumer --bootstrap-server h:1 --messages 5"),
        (
            "kafka-e2e-latency",
            "h:1 t 10 all 20",
            "bench e2e --bootstrap-server h:1 --topic t --num-records 10 --producer-acks all --record-size 20",
        ),
        (
            "kafka-leader-election",
            "--election-type preferred --topic t --partition 0",
            "partitions elect --yes --election-type preferred --topic t --partition 0",
        ),
        ("kafka-preferred-replica-election", "", "partitions elect --yes --all-topic-partitions"),
        ("kafka-preferred-replica-election", "--path-to-json-file f", "partitions elect --yes --path-to-json-file f"),
        ("kafka-reassign-partitions", "--bootstrap-server h:1 --list", "partitions list --bootstrap-server h:1"),
        (
            "kafka-reassign-partitions",
            "--reassignment-json-file f --execute",
            "partitions reassign --yes --execute --reassignment-json-file f",
        ),
        ("kafka-server-start", "server.properties --override a=b", "start --config server.properties --override a=b"),
        ("kafka-server-stop", "", "stop"),
    ],
)
def test_a_line_becomes_one_of_ours(tool: str, line: str, wanted: str) -> None:
    assert translations.make(tool, line.split()) == Translation(wanted.split())


def test_a_verb_is_not_taken_from_the_value_of_an_option() -> None:
    assert translations.split_verb("kafka-transactions", ["--transactional-id", "list", "describe"]) == (
        "describe",
        ["--transactional-id", "list"],
    )
    with pytest.raises(UsageError, match="needs one of"):
        translations.split_verb("kafka-features", [])


def test_storage_makes_ids_and_formats_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(translations.make("kafka-storage", ["random-uuid"]), Command)
    assert main(["kafka-storage.sh", "random-uuid"]) == 0
    assert len(capsys.readouterr().out) == 23
    assert main(["kafka-storage", "format", "-t", "id", "-c", "server.properties"]) == 0
    assert capsys.readouterr().out == ""


def test_refusals_in_the_words_that_scripts_look_for() -> None:
    refused = ApiError(ErrorCode.NON_EMPTY_GROUP, "group 'g'")
    assert java_error(refused) == "org.apache.kafka.common.errors.GroupNotEmptyException: The group is not empty."
    assert java_error(ApiError(ErrorCode.INVALID_CONFIG, "no")) == "INVALID_CONFIG: no"
    assert plain_message(ApiError(ErrorCode.INVALID_CONFIG, "topic 't': Unknown: x")) == "Unknown: x"
    assert plain_message(ApiError(ErrorCode.INVALID_CONFIG, "Unknown: 'x': y")) == "Unknown: 'x': y"


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
    assert "is there already and is not ours; --force overwrites it" in capsys.readouterr().err
    assert theirs.read_text() == "#!/bin/bash\n" and len(list(tmp_path.iterdir())) == 1
    assert main(["shims", "install", "--force", str(tmp_path)]) == 0
    assert "ottla" in theirs.read_text()


def test_a_broker_that_is_away_is_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-topics.sh", "--list", "--bootstrap-server", "127.0.0.1:1"]) == 3
    assert "cannot reach" in capsys.readouterr().err


def test_a_daemon_outlives_its_start_and_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("server.properties").write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\n")
    words = ["kafka-server-start.sh", "-daemon", "server.properties", "--override", "num.partitions=2"]
    done = subprocess.run([sys.executable, "-m", "ottla.cli.main", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    try:
        ready = done.stdout
        assert ready.startswith("READY 127.0.0.1:")
        assert main(["kafka-topics.sh", "--create", "--topic", "t", "--bootstrap-server", ready.split()[1]]) == 0
        assert main(["kafka-topics.sh", "--describe", "--topic", "t", "--bootstrap-server", ready.split()[1]]) == 0
        assert "PartitionCount: 2" in capsys.readouterr().out
    finally:
        assert main(["kafka-server-stop.sh", "--config", "server.properties"]) == 0


def test_a_daemon_that_cannot_start_says_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["kafka-server-start", "-daemon", "nowhere.properties"]) == 1
    assert capsys.readouterr().err == "error: the broker did not start; kafkaServer.out says why\n"
    assert "cannot read nowhere.properties" in Path("kafkaServer.out").read_text()


def test_the_version_names_kafkas_level_first(offline: Ottla) -> None:
    for tool in (("kafka-topics",), ("kafka-transactions",), ("kafka-run-class", "kafka.tools.GetOffsetShell")):
        assert offline(*tool, "--version").out.startswith("4.4.0 (Ottla ")


@pytest.mark.parametrize(
    ("pattern", "verdict"),
    [
        ("orders-.*", "valid"),
        ("a(?=b)", "invalid: invalid or unsupported Perl syntax"),
        (r"(a)\1", r"invalid: invalid escape sequence: `\1`"),
    ],
)
def test_regular_expressions_are_judged_as_groups_take_them(offline: Ottla, pattern: str, verdict: str) -> None:
    said = offline("kafka-consumer-groups", "--bootstrap-server", "h:1", "--validate-regex", pattern).out
    assert said == f"The regular expression `{pattern}` is {verdict}.\n"


@pytest.mark.parametrize("name", ["zookeeper-server-start", "connect-standalone.sh", "trogdor", "kafka-verifiable-producer"])
def test_tools_that_are_not_here_say_so_in_one_line(offline: Ottla, name: str) -> None:
    refused = offline(name, "config/any.properties")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)


def test_scripts_of_every_tool_are_written(offline: Ottla, tmp_path: Path) -> None:
    assert offline("shims", "install", tmp_path).code == 0
    assert {"kafka-topics.sh", "kafka-run-class.sh", "kafka-acls.sh", "zookeeper-server-start.sh"} <= set(os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("format --cluster-id abc -c f --no-initial-controllers --release-version 4.0 --feature kraft.version=1", 0),
        ("format -t abc -c f --initial-controllers 0@controller-0:1234:3Db5QLSqSZieL3rJBUUegA --ignore-formatted", 0),
        ("format -t abc -c f --add-scram SCRAM-SHA-256=[name=admin,password=x]", 1),
        ("version-mapping -r 4.1", 0),
        ("feature-dependencies -f share.version=1", 0),
    ],
)
def test_storage_lines_of_the_documentation(offline: Ottla, line: str, code: int) -> None:
    result = offline("kafka-storage", *line.split())
    assert result.code == code
    assert (result.out + result.err).strip()
