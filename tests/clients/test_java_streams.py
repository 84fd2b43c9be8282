"""Kafka Streams' Java client in a streams group (KIP-1071): a word count with a repartition topic and a changelog, in several instances.

Instances are killed, added and closed, and the broker is killed, while lines keep coming in. Every word's counts in the output are 1, 2, 3
and so on: nothing is lost, nothing is counted twice.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core.admin import GROUP_RESOURCE, alter_configs, create_topic
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.copied import PARTITIONS, read_all
from tests.clients.java_program import Java

SETTINGS = (
    "group.streams.assignment.interval.ms=0",
    "group.streams.heartbeat.interval.ms=200",
    "group.streams.min.heartbeat.interval.ms=100",
    "group.streams.initial.rebalance.delay.ms=0",
    "group.streams.session.timeout.ms=5000",
    "group.streams.min.session.timeout.ms=1000",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)
PATIENCE_SECONDS = 150
TOOLS = "org.apache.kafka.tools."
RECORD_TYPES = {"17", "19", "20", "21", "22", "23"}
"""The records of streams groups, as Kafka's tools name them."""
LINES = ("the quick brown fox jumps over the lazy dog", "a lazy afternoon", "the end")

TASKS = {f"{subtopology}_{partition}" for subtopology in "01" for partition in range(PARTITIONS)}


class Instance:
    """An instance of the application in a JVM of its own."""

    def __init__(self, java: Java, broker: BrokerProcess, state: Path, *settings: str) -> None:
        command = java.command("steps.StreamsWorker", broker.address, "wordcount", str(state), *settings)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self.errors: list[str] = []
        assert self.process.stdout is not None and self.process.stderr is not None
        self._readers = [
            threading.Thread(target=lambda: self.said.extend(map(str.strip, iter(self.process.stdout.readline, "")))),  # type: ignore[union-attr]
            threading.Thread(target=lambda: self.errors.extend(iter(self.process.stderr.readline, ""))),  # type: ignore[union-attr]
        ]
        for reader in self._readers:
            reader.start()

    def _last(self, word: str) -> str:
        return next((line.removeprefix(word) for line in reversed(self.said) if line.startswith(word)), "")

    @property
    def state(self) -> str:
        return self._last("state ")

    def tasks(self) -> tuple[set[str], set[str]]:
        """The active and the standby tasks of the last line about them."""
        active, _, standby = self._last("tasks ").partition(" ")
        return {task for task in active.split(",") if task}, {task for task in standby.split(",") if task}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_SECONDS) == 0, "".join(self.errors)
        self._end()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._end()

    def _end(self) -> None:
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()


@pytest.fixture(scope="module")
def java(need_program: Callable[[str], str]) -> Java:
    return Java(need_program)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", SETTINGS).start()
    yield process
    process.stop()


@pytest.fixture
def instance(java: Java, broker: BrokerProcess, tmp_path: Path) -> Iterator[Callable[..., Instance]]:
    """Starts instances by name, which names the directory of their state, and ends them with the test."""
    started: list[Instance] = []

    def start(name: str, *settings: str) -> Instance:
        started.append(Instance(java, broker, tmp_path / name, *settings))
        return started[-1]

    yield start
    for one in started:
        one.kill()


class Text:
    """The lines that were written so far."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.words: Counter[str] = Counter()
        self._count = 0

    def write(self, count: int) -> None:
        with Cluster(self.broker.address) as cluster, Producer(cluster) as producer:
            for number in range(self._count, self._count + count):
                line = LINES[number % len(LINES)]
                producer.produce("lines", line.encode(), partition=number % PARTITIONS)
                self.words.update(line.split())
            producer.flush()
        self._count += count


def counted(broker: BrokerProcess) -> dict[str, list[int]]:
    """The counts of each word in the output, in order, without those of aborted transactions."""
    found: dict[str, list[int]] = {}
    for messages in read_all(broker.address, "counts", "read_committed").values():
        for message in messages:
            found.setdefault(message.key().decode(), []).append(int.from_bytes(message.value(), "big"))
    return found


def totals(broker: BrokerProcess) -> Counter[str]:
    return Counter({word: counts[-1] for word, counts in counted(broker).items()})


def describing(broker: BrokerProcess) -> list[str]:
    return ["--bootstrap-server", broker.address, "--describe", "--group", "wordcount"]


def is_balanced(*instances: Instance) -> bool:
    """Whether the instances have all tasks as active tasks, in equal numbers."""
    active = [one.tasks()[0] for one in instances]
    return set().union(*active) == TASKS and {len(mine) for mine in active} == {len(TASKS) // len(instances)}


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
def test_a_word_count_is_exact_over_kills_of_instances_and_of_the_broker(
    broker: BrokerProcess, instance: Callable[..., Instance], java: Java
) -> None:
    settings = ("processing.guarantee=exactly_once_v2", "producer.transaction.timeout.ms=10000")
    text = Text(broker)
    with Cluster(broker.address) as cluster:
        create_topic(cluster, "lines", partitions=PARTITIONS)
        create_topic(cluster, "counts", partitions=PARTITIONS)
        alter_configs(cluster, GROUP_RESOURCE, "wordcount", changes={"streams.num.standby.replicas": "1"})
    text.write(90)
    first = instance("first", *settings)
    eventually(lambda: first.tasks()[0] == TASKS, seconds=PATIENCE_SECONDS)
    eventually(lambda: totals(broker) == text.words, seconds=PATIENCE_SECONDS)

    second = instance("second", *settings)
    eventually(lambda: is_balanced(first, second), seconds=PATIENCE_SECONDS)
    stateful = {task for task in TASKS if task.startswith("1")}
    eventually(lambda: first.tasks()[1] | second.tasks()[1] == stateful, seconds=PATIENCE_SECONDS)
    assert not (first.tasks()[1] & first.tasks()[0] or second.tasks()[1] & second.tasks()[0]), "a standby beside its active task"

    described = java.run(f"{TOOLS}streams.StreamsGroupCommand", *describing(broker), "--members", "--verbose").stdout.splitlines()
    assert len(described) == 3 and all(" ACTIVE: 0:[" in line and " TARGET-STANDBY: 1:[" in line for line in described[1:]), described

    text.write(90)
    first.kill()
    eventually(lambda: second.tasks()[0] == TASKS, seconds=PATIENCE_SECONDS)
    eventually(lambda: totals(broker) == text.words, seconds=PATIENCE_SECONDS)

    third = instance("third", *settings)
    eventually(lambda: is_balanced(second, third), seconds=PATIENCE_SECONDS)
    text.write(90)
    broker.crash()
    text.write(90)
    eventually(lambda: totals(broker) == text.words, seconds=PATIENCE_SECONDS)
    second.close()
    eventually(lambda: third.tasks()[0] == TASKS, seconds=PATIENCE_SECONDS)
    text.write(30)
    eventually(lambda: totals(broker) == text.words, seconds=PATIENCE_SECONDS)
    third.close()
    assert not [line for one in (first, second, third) for line in one.said if line.startswith("failed")]
    assert counted(broker) == {word: list(range(1, count + 1)) for word, count in text.words.items()}
    logs = ",".join(str(path) for path in broker.data.glob("__consumer_offsets-*/*.log"))
    dumped = java.run(f"{TOOLS}DumpLogSegments", "--offsets-decoder", "--files", logs).stdout
    assert set(re.findall(r'key: {"type":"(\d+)"[^\n]* payload: {"version":"0"', dumped)) >= RECORD_TYPES


@pytest.mark.timeout(900)
def test_an_application_without_its_source_topic_fails_with_kafkas_reason(
    broker: BrokerProcess, instance: Callable[..., Instance]
) -> None:
    lonely = instance("lonely")
    eventually(lambda: lonely.state == "ERROR", seconds=PATIENCE_SECONDS)
    (reason,) = [line for line in lonely.said if line.startswith("failed")]
    assert "MissingSourceTopicException" in reason and "Source topics lines are missing." in reason
