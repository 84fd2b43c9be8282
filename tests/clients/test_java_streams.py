"""Kafka Streams' Java client in a streams group (KIP-1071): a word count with a repartition topic and a changelog in several instances, and
a join of a stream with a table whose results are counted per window.

Instances are killed, added and closed, and the broker is killed, while records are written. Every key's counts in the output are 1, 2, 3
and so on, so no record is lost or counted twice.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core.admin import GROUP_RESOURCE, TOPIC_RESOURCE, alter_configs, create_topic, describe_configs
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
APPLICATION = "counting"
EXACTLY_ONCE = ("processing.guarantee=exactly_once_v2", "producer.transaction.timeout.ms=10000")
TOOLS = "org.apache.kafka.tools."
RECORD_TYPES = {"17", "19", "20", "21", "22", "23"}
"""The records of streams groups, as Kafka's tools name them."""
LINES = ("the quick brown fox jumps over the lazy dog", "a lazy afternoon", "the end")

TASKS = {f"{subtopology}_{partition}" for subtopology in "01" for partition in range(PARTITIONS)}


class Instance:
    """An instance of the application in its own JVM."""

    def __init__(self, java: Java, broker: BrokerProcess, state: Path, topology: str, *settings: str) -> None:
        command = java.command("steps.StreamsWorker", broker.address, APPLICATION, str(state), topology, *settings)
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

    def start(name: str, *settings: str, topology: str = "words") -> Instance:
        started.append(Instance(java, broker, tmp_path / name, topology, *settings))
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
    return ["--bootstrap-server", broker.address, "--describe", "--group", APPLICATION]


def is_balanced(*instances: Instance) -> bool:
    """Whether the instances have all tasks as active tasks, in equal numbers."""
    active = [one.tasks()[0] for one in instances]
    return set().union(*active) == TASKS and {len(mine) for mine in active} == {len(TASKS) // len(instances)}


@pytest.mark.night
@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
def test_a_word_count_is_exact_over_kills_of_instances_and_of_the_broker(
    broker: BrokerProcess, instance: Callable[..., Instance], java: Java
) -> None:
    text = Text(broker)
    with Cluster(broker.address) as cluster:
        create_topic(cluster, "lines", partitions=PARTITIONS)
        create_topic(cluster, "counts", partitions=PARTITIONS)
        alter_configs(cluster, GROUP_RESOURCE, APPLICATION, changes={"streams.num.standby.replicas": "1"})
    text.write(90)
    first = instance("first", *EXACTLY_ONCE)
    eventually(lambda: first.tasks()[0] == TASKS, seconds=PATIENCE_SECONDS)
    eventually(lambda: totals(broker) == text.words, seconds=PATIENCE_SECONDS)

    second = instance("second", *EXACTLY_ONCE)
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

    third = instance("third", *EXACTLY_ONCE)
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


class Sales:
    """Customers and their purchases, one each second. Customer 0 moves after 20 seconds, and customer 5 has no city.

    Each count that the output must have is computed here: the counts of a city and a window are 1, 2, 3 and so on.
    """

    CITIES = ("oslo", "rome", "oslo", "lima", "rome")
    MOVE_AFTER_MS, WINDOW_MS, LATE_BY_MS = 20_000, 10_000, 600_000

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.started_ms = int(time.time()) // 10 * 10_000
        self.counts: Counter[str] = Counter()
        self._count = 0

    def write_customers(self) -> None:
        moves = [(number, city, 0) for number, city in enumerate(self.CITIES)] + [(0, "lima", self.MOVE_AFTER_MS)]
        with Cluster(self.broker.address) as cluster, Producer(cluster) as producer:
            for number, city, after_ms in moves:
                key, when_ms = b"%d" % number, self.started_ms + after_ms - 1
                producer.produce("customers", city.encode(), key, partition=number % PARTITIONS, timestamp=when_ms)
            producer.flush()

    def write(self, count: int) -> None:
        """Writes purchases. The customers that have cities buy a second time in a window that ended long ago after the first ones."""
        with Cluster(self.broker.address) as cluster, Producer(cluster) as producer:
            for number in range(self._count, self._count + count):
                customer, when_ms = number % (len(self.CITIES) + 1), self.started_ms + number * 1000
                key, target = b"%d" % customer, customer % PARTITIONS
                producer.produce("purchases", b"book", key, partition=target, timestamp=when_ms)
                if self._count:
                    producer.produce("purchases", b"late", key, partition=target, timestamp=when_ms - self.LATE_BY_MS)
                if customer < len(self.CITIES):
                    has_moved = customer == 0 and number * 1000 >= self.MOVE_AFTER_MS
                    city = "lima" if has_moved else self.CITIES[customer]
                    self.counts[f"{city}@{when_ms - when_ms % self.WINDOW_MS}"] += 1
            producer.flush()
        self._count += count

    def is_counted(self) -> bool:
        return counted(self.broker) == {key: list(range(1, count + 1)) for key, count in self.counts.items()}


@pytest.mark.timeout(900)
def test_a_join_with_a_table_and_a_count_per_window_are_exact_over_a_kill_of_the_broker(
    broker: BrokerProcess, instance: Callable[..., Instance]
) -> None:
    sales = Sales(broker)
    with Cluster(broker.address) as cluster:
        for topic in ("customers", "purchases", "counts"):
            create_topic(cluster, topic, partitions=PARTITIONS)
    sales.write_customers()
    sales.write(60)
    only = instance("only", *EXACTLY_ONCE, topology="sales")
    eventually(sales.is_counted, seconds=PATIENCE_SECONDS)
    sales.write(30)
    broker.crash()
    sales.write(30)
    eventually(sales.is_counted, seconds=PATIENCE_SECONDS)
    only.close()
    assert sales.is_counted()
    assert not [line for line in only.said if line.startswith("failed")]
    with Cluster(broker.address) as cluster:
        found = describe_configs(cluster, TOPIC_RESOURCE, [f"{APPLICATION}-windows-changelog", f"{APPLICATION}-cities-changelog"])
    policies = [next(entry.value for entry in entries if entry.name == "cleanup.policy") for entries in found.values()]
    assert policies == ["compact,delete", "compact"], "the changelog of windows also expires"


@pytest.mark.timeout(900)
def test_an_application_without_its_source_topic_fails_with_kafkas_reason(
    broker: BrokerProcess, instance: Callable[..., Instance]
) -> None:
    lonely = instance("lonely")
    eventually(lambda: lonely.state == "ERROR", seconds=PATIENCE_SECONDS)
    (reason,) = [line for line in lonely.said if line.startswith("failed")]
    assert "MissingSourceTopicException" in reason and "Source topics lines are missing." in reason
