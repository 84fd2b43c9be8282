"""Lines of Kafka's tools that are translated to commands of ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.command import Command, Translation, UsageError
from ottla.cli.kafka_tools import translations
from ottla.cli.main import main
from tests.cli.conftest import Ottla


@pytest.mark.parametrize(
    ("tool", "line", "wanted"),
    [
        ("kafka-console-producer", "--broker-list h:1 --topic t", "produce --bootstrap-server h:1 --topic t"),
        ("kafka-console-consumer", "--whitelist t.*", "consume -X allow.auto.create.topics=true --whitelist t.*"),
        ("kafka-get-offsets", "--broker-list=h:1 --time -2", "offsets -o plain --bootstrap-server=h:1 --time -2"),
        ("kafka-log-dirs", "--describe --broker-list 0,1", "logdirs --describe --broker-list 0,1"),
        ("kafka-delete-records", "--offset-json-file f", "records delete --yes --offset-json-file f"),
        ("kafka-dump-log", "--files 0.log", "log dump --files 0.log"),
        ("kafka-configs", "--alter --broker-defaults --add-config a=1", "config alter --broker-defaults --add-config a=1"),
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
    made = translations.make(tool, line.split())
    assert isinstance(made, Translation)
    assert made.argv == wanted.split()


def test_a_verb_is_not_taken_from_the_value_of_an_option() -> None:
    assert translations.split_verb("kafka-transactions", ["--transactional-id", "list", "describe"]) == (
        "describe",
        ["--transactional-id", "list"],
    )
    with pytest.raises(UsageError, match="needs one of"):
        translations.split_verb("kafka-features", [])


@pytest.mark.parametrize(
    ("words", "group"),
    [
        ([], "console-share-consumer"),
        (["--group", "g"], "g"),
        (["--consumer-property", "group.id=g"], "g"),
        (["--consumer-property=group.id=g"], "g"),
        (["--command-property=group.id=g", "--group=g"], "g"),
        (["--consumer-config", "FILE"], "of the file"),
        (["--command-config=FILE"], "of the file"),
    ],
)
def test_the_console_share_consumer_finds_its_group_wherever_it_is_given(words: list[str], group: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("client.id=c\ngroup.id=of the file\n")
    made = translations.make("kafka-console-share-consumer", [word.replace("FILE", str(tmp_path / "p")) for word in words])
    assert isinstance(made, Translation)
    joined = " ".join(made.argv)
    assert joined.count("--share-group") == 1 and re.search(rf"--share-group[ =]{group}( |$)", joined)


def test_the_console_share_consumer_refuses_two_groups(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("group.id=other\n")
    for second in ("--consumer-property=group.id=other", f"--command-config={tmp_path / 'p'}"):
        with pytest.raises(UsageError, match="do not match: g, other"):
            translations.make("kafka-console-share-consumer", ["--group", "g", second])


def test_storage_makes_ids_and_formats_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(translations.make("kafka-storage", ["random-uuid"]), Command)
    assert main(["kafka-storage.sh", "random-uuid"]) == 0
    assert len(capsys.readouterr().out) == 23
    assert main(["kafka-storage", "format", "-t", "id", "-c", "server.properties"]) == 0
    assert capsys.readouterr().out == ""


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


def test_a_daemon_that_cannot_start_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["kafka-server-start", "-daemon", "nowhere.properties"]) == 1
    assert capsys.readouterr().err == "error: the broker did not start; kafkaServer.out says why\n"
    assert "cannot read nowhere.properties" in Path("kafkaServer.out").read_text()
    assert Path("kafkaServer.out").stat().st_mode & 0o777 == 0o600, "it names topics, groups and clients"
