"""Apache Kafka's command-line tools and Ottla's print the same for the same command lines, except for declared differences. Command lines
of Kafka's tutorials work too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import ROOT, BrokerProcess
from tests.clients.java_program import Java
from tools.compare_cases import CASES
from tools.compare_tools import ACCESS, Seen, Verdict, run_ours, run_theirs

SETTINGS = (
    "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=5", "transaction.state.log.num.partitions=5",
    "share.coordinator.state.topic.num.partitions=5", "group.share.assignment.interval.ms=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> dict[str, Verdict]:
    """Runs all cases on two empty brokers: one for Kafka's tools, in one JVM, and one for Ottla's."""
    java = Java(need_program)

    def on_new_broker(name: str, run: Callable[[str, Path], list[Seen]]) -> list[Seen]:
        folder = tmp_path_factory.mktemp(name)
        process = BrokerProcess(folder, (*SETTINGS, *ACCESS)).start()
        try:
            return run(process.address, folder)
        finally:
            process.stop()

    theirs = on_new_broker("theirs", lambda address, folder: run_theirs(java.run, CASES, address, folder))
    ours = on_new_broker("ours", lambda address, folder: run_ours(CASES, address, folder))
    judged = [Verdict(case, *seen) for case, *seen in zip(CASES, theirs, ours, strict=True)]
    return {f"{number} {verdict.case.line}": verdict for number, verdict in enumerate(judged)}


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
@pytest.mark.parametrize("name", [f"{number} {case.line}" for number, case in enumerate(CASES)])
def test_output_is_equal_or_the_difference_is_declared(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert verdict.has_same_output == (not verdict.case.why), verdict.show()
    assert verdict.has_same_exit == (not verdict.case.exits), verdict.show()


def test_no_line_ends_in_a_traceback(verdicts: dict[str, Verdict]) -> None:
    assert [name for name, verdict in verdicts.items() if "Traceback" in verdict.ours.stderr] == []


# Command lines from the documentation of Kafka 2.x, 3.x and 4.x, pasted into a shell


@pytest.fixture(scope="module")
def bin_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a directory with `bin/kafka-topics.sh` and the other tools."""
    home = tmp_path_factory.mktemp("kafka")
    command = [sys.executable, "-m", "ottla.cli.main", "shims", "install", str(home / "bin")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def tutorial_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A new broker for each tutorial, because one tutorial sets quotas that would slow down another."""
    process = BrokerProcess(tmp_path, SETTINGS).start()
    yield process
    process.stop()


Paste = Callable[[str], str]


@pytest.fixture
def paste(bin_directory: Path, tutorial_broker: BrokerProcess) -> Paste:
    """Runs a command line of a tutorial; only the port is changed."""

    def run(line: str) -> str:
        line = line.replace("localhost:9092", tutorial_broker.address)
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=bin_directory, timeout=300, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


def test_quick_start_of_2_x(paste: Paste) -> None:
    create = "bin/kafka-topics.sh --create --bootstrap-server localhost:9092 --replication-factor 1 --partitions 1 --topic test"
    assert paste(create) == "Created topic test.\n"
    assert "test\n" in paste("bin/kafka-topics.sh --list --bootstrap-server localhost:9092")
    lines = "printf 'This is a message\\nThis is another message\\n'"
    paste(f"{lines} | bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test")
    read = "bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic test --from-beginning --max-messages 2"
    assert paste(read) == "This is a message\nThis is another message\n"
    described = paste("bin/kafka-topics.sh --describe --bootstrap-server localhost:9092 --topic test")
    assert described.startswith("Topic: test\t") and described.splitlines()[1].startswith("\tTopic: test\tPartition: 0\tLeader: 0\t")
    offsets = "bin/kafka-run-class.sh kafka.tools.GetOffsetShell --broker-list localhost:9092 --topic test --time -1"
    assert paste(offsets) == "test:0:2\n"


def test_quick_start_of_3_x(paste: Paste) -> None:
    assert len(paste('KAFKA_CLUSTER_ID="$(bin/kafka-storage.sh random-uuid)"; echo $KAFKA_CLUSTER_ID').strip()) == 22
    paste("bin/kafka-storage.sh format --standalone -t $KAFKA_CLUSTER_ID -c config/kraft/reconfig-server.properties")
    paste("bin/kafka-topics.sh --create --topic quickstart-events --bootstrap-server localhost:9092")
    paste(
        "printf 'This is my first event\\nThis is my second event\\n' |"
        " bin/kafka-console-producer.sh --topic quickstart-events --bootstrap-server localhost:9092"
    )
    read = (
        "bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning --bootstrap-server localhost:9092"
        " --property print.key=true --property key.separator=- --max-messages 2"
    )
    assert paste(read) == "null-This is my first event\nnull-This is my second event\n"
    counts = "bin/kafka-topics.sh --create --topic counts --partitions 1 --config cleanup.policy=compact --bootstrap-server localhost:9092"
    assert paste(counts) == "Created topic counts.\n"
    alter = (
        "bin/kafka-configs.sh --bootstrap-server localhost:9092 --entity-type topics --entity-name counts --alter"
        " --add-config max.message.bytes=128000"
    )
    assert paste(alter) == "Completed updating config for topic counts.\n"


def test_groups_as_the_operations_guide_of_4_x_has_them(paste: Paste) -> None:
    paste("bin/kafka-topics.sh --bootstrap-server localhost:9092 --create --topic my_topic_name --partitions 2 --replication-factor 1")
    paste("printf 'a\\nb\\n' | bin/kafka-console-producer.sh --bootstrap-server localhost:9092 --topic my_topic_name --sync")
    read = "bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic my_topic_name --group my-group"
    assert sorted(paste(f"{read} --from-beginning --max-messages 2").split()) == ["a", "b"]
    assert "my-group" in paste("bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092 --list").split()
    described = paste("bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092 --describe --group my-group")
    assert described.split()[:5] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET"]
    reset = (
        "bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092 --reset-offsets --group my-group --topic my_topic_name"
        " --to-earliest --execute"
    )
    assert [line.split() for line in paste(reset).splitlines() if line][1:] == [["my-group", "my_topic_name", n, "0"] for n in "01"]
    assert "my-group" in paste("bin/kafka-groups.sh --bootstrap-server localhost:9092 --list")
    deleted = "bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092 --delete --group my-group"
    assert paste(deleted) == "Deletion of requested consumer groups ('my-group') was successful.\n"


def test_performance_tools_as_blogs_have_them(paste: Paste) -> None:
    paste("bin/kafka-topics.sh --bootstrap-server localhost:9092 --create --topic speed")
    written = paste(
        "bin/kafka-producer-perf-test.sh --topic speed --num-records 500 --record-size 100 --throughput -1"
        " --producer-props acks=1 linger.ms=5 bootstrap.servers=localhost:9092"
    )
    assert written.startswith("500 records sent, ") and written.endswith(" ms 99.9th.\n")
    found = paste("bin/kafka-consumer-perf-test.sh --broker-list localhost:9092 --topic speed --messages 500 --threads 1")
    assert found.splitlines()[1].split(", ")[4] == "500"


ACCEPTED = (
    "bin/kafka-configs.sh --bootstrap-server localhost:9092 --alter --add-config 'SCRAM-SHA-256=[iterations=8192,password=alice-secret]'"
    " --entity-type users --entity-name alice",
    "bin/kafka-topics.sh --bootstrap-server localhost:9092 --create --topic guide --partitions 2 --config retention.ms=3600000",
    "bin/kafka-topics.sh --bootstrap-server localhost:9092 --alter --topic guide --partitions 4",
    "bin/kafka-configs.sh --bootstrap-server localhost:9092 --entity-type topics --entity-name guide --alter --delete-config retention.ms",
    "bin/kafka-leader-election.sh --bootstrap-server localhost:9092 --election-type preferred --all-topic-partitions",
    "bin/kafka-configs.sh --bootstrap-server localhost:9092 --alter --add-config 'producer_byte_rate=1024,consumer_byte_rate=2048,"
    "request_percentage=200' --entity-type users --entity-name user1 --entity-type clients --entity-name clientA",
    "bin/kafka-configs.sh --bootstrap-server localhost:9092 --alter --add-config 'producer_byte_rate=1024,consumer_byte_rate=2048,"
    "request_percentage=200' --entity-type clients --entity-default",
    "bin/kafka-configs.sh --bootstrap-server localhost:9092 --describe --entity-type users --entity-type clients",
    "bin/kafka-configs.sh --bootstrap-server localhost:9092 --entity-type brokers --entity-name 0 --alter --add-config num.io.threads=2",
    "bin/kafka-configs.sh --bootstrap-server localhost:9092 --entity-type brokers --entity-default --describe",
    "bin/kafka-transactions.sh --bootstrap-server localhost:9092 find-hanging --broker 0",
    "bin/kafka-features.sh --bootstrap-server localhost:9092 describe",
    "bin/kafka-storage.sh format --cluster-id abc --config x.properties --no-initial-controllers",
    "bin/kafka-consumer-groups.sh --new-consumer --bootstrap-server localhost:9092 --list",
    "bin/kafka-run-class.sh kafka.tools.GetOffsetShell --broker-list localhost:9092 --topic guide --time -1 --offsets 1",
)
NOT_HERE = (
    "bin/zookeeper-server-start.sh config/zookeeper.properties",
    "bin/connect-standalone.sh config/connect-standalone.properties config/connect-file-source.properties",
    "bin/kafka-acls.sh --bootstrap-server localhost:9092 --add --allow-principal User:Bob --operation Read --topic Test-topic",
    "bin/kafka-metadata-quorum.sh --bootstrap-server localhost:9092 describe --status",
    "bin/kafka-topics.sh --create --topic tiered --bootstrap-server localhost:9092 --config remote.storage.enable=true",
)


def test_lines_of_the_operations_guide(paste: Paste, bin_directory: Path, tutorial_broker: BrokerProcess) -> None:
    """Each command line works when it is pasted, or prints one line that says why it does not."""
    assert "Completed" in "".join(map(paste, ACCEPTED))
    for line in NOT_HERE:
        command = ["sh", "-c", line.replace("localhost:9092", tutorial_broker.address)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=bin_directory, timeout=300, check=False)
        assert (done.returncode, (done.stdout + done.stderr).count("\n")) == (1, 1), f"{line}\n{done.stdout}{done.stderr}"
