"""A replica with missing, damaged, shortened or old files does not become leader (broker processes and a real ZooKeeper). Every case stops
the leader after the other brokers, or all at once, damages files of the leader, and starts the leader before the others. Afterwards all
acknowledged records must be in the log, a log line must name the damage, and all replicas must be in sync again without an operator.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla.metadata_store import znodes
from ottla.testing.zookeeper_process import ZooKeeperProcess
from ottla.wire.batch_header import HEADER, LOG_OVERHEAD, BatchHeader
from tests.clients.broker_process import eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster, read_partition
from tests.clusters.conftest import running

TOPIC = "d"
RECORDS = 600
BATCH = 20


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.night)], ids=["", "flush-on-ack"])
def cluster(request: pytest.FixtureRequest, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("lying"), zookeeper, **{"ottla.flush.on.ack": str(request.param).lower()})
    with running(made):
        yield made


class Case:
    """A topic with one partition on three replicas, and the leader that is to be damaged."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.written: list[int] = []
        admin = cluster.admin()  # a client that nothing refers to gives up
        for broker in cluster.brokers.values():
            if not broker.is_running:
                broker.start()
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(WAIT_SECONDS)
        cluster.wait_until_healthy(topic)
        self.leader = cluster.leader_of(topic)
        self.others = [number for number in cluster.brokers if number != self.leader]
        self.log_length = len(self.log_text())

    @property
    def directory(self) -> Path:
        return self.directory_on(self.leader)

    def directory_on(self, number: int) -> Path:
        return self.cluster.brokers[number].data / f"{self.topic}-0"

    @property
    def segment(self) -> Path:
        return self.directory / f"{0:020d}.log"

    def log_text(self) -> str:
        return "\n".join(broker.log_text() for broker in self.cluster.brokers.values())

    def write(self, count: int = RECORDS) -> None:
        """Writes records with acks=all, in batches of `BATCH`."""
        producer = Producer({"bootstrap.servers": self.cluster.addresses, "acks": "all", "linger.ms": 50, **self.cluster.client})
        failed: list[object] = []
        for number in range(len(self.written), len(self.written) + count):
            producer.produce(self.topic, str(number).encode(), on_delivery=lambda error, _: failed.append(error) if error else None)
            self.written.append(number)
            if number % BATCH == BATCH - 1:
                assert producer.flush(WAIT_SECONDS) == 0
        assert producer.flush(WAIT_SECONDS) == 0 and failed == []

    def isr(self) -> list[int]:
        with self.cluster.nodes() as client:
            return sorted(json.loads(client.get(znodes.state_path(self.topic, 0))[0])["isr"])

    def kill(self, *, is_at_once: bool) -> None:
        """Kills all brokers: at once, or the leader last, when it alone is in sync."""
        if is_at_once:
            for broker in self.cluster.brokers.values():
                os.kill(broker.pid, signal.SIGKILL)  # before any of them notices that another one has been killed
        for number in self.others:
            self.cluster.brokers[number].kill()
        if not is_at_once:
            eventually(lambda: self.isr() == [self.leader], WAIT_SECONDS)
        self.cluster.brokers[self.leader].kill()

    def start(self) -> None:
        for number in (self.leader, *self.others):
            self.cluster.brokers[number].start()

    def start_others(self) -> None:
        for number in self.others:
            self.cluster.brokers[number].start()

    def set_in_sync_min(self, value: int) -> None:
        entry = ConfigEntry("min.insync.replicas", str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
        admin = self.cluster.admin()  # a client that nothing refers to gives up
        admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)

    def lead(self) -> None:
        """Makes the former leader the leader again."""
        admin = self.cluster.admin()

        def leads() -> bool:
            admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(self.topic, 0)]).result(WAIT_SECONDS)
            return self.cluster.leader_of(self.topic) == self.leader

        eventually(leads, WAIT_SECONDS)

    def check(self, *words: str) -> None:
        """Checks that no record is lost, that a log line names the damage of the partition, and that all replicas are in sync."""
        self.check_records(f"{self.topic}-0", *words)

    def check_records(self, *words: str) -> None:
        try:
            self.cluster.wait_until_healthy(self.topic)
            found = read_partition(self.cluster, self.topic, 0)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.logs()}") from None
        assert [found[offset] for offset in sorted(found)] == self.written, f"{len(found)} of {len(self.written)}\n{self.cluster.logs()}"
        assert any(all(word in line for word in words) for line in self.log_text().splitlines()), f"{words}\n{self.cluster.logs()}"


@pytest.fixture
def case(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Case]:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    made = Case(cluster, name)
    made.write()
    yield made


def remove_directory(case: Case) -> None:
    shutil.rmtree(case.directory)


def flip_bit(case: Case) -> None:
    data = bytearray(case.segment.read_bytes())
    data[len(data) * 6 // 10] ^= 0x10
    case.segment.write_bytes(data)


def cut_at_batch(case: Case) -> None:
    data = case.segment.read_bytes()
    position = 0
    while position < len(data) // 2:
        position += BatchHeader._make(HEADER.unpack_from(data, position)).batch_length + LOG_OVERHEAD
    case.segment.write_bytes(data[:position])


def remove_segment(case: Case) -> None:
    case.segment.unlink()


@pytest.mark.parametrize("is_at_once", [False, True], ids=["last-in-sync", "all-killed"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove_directory, ["missing"]),
        (flip_bit, ["damage"]),
        (cut_at_batch, ["damage"]),
        (remove_segment, ["damage"]),
    ],
)
def test_a_damaged_leader_that_starts_first_costs_nothing(
    case: Case, damage: Callable[[Case], None], words: list[str], is_at_once: bool
) -> None:
    case.kill(is_at_once=is_at_once)
    damage(case)
    case.start()
    case.check(*words)
    case.write(BATCH)
    case.check(*words)


def test_two_damaged_replicas_that_start_first_cost_nothing_when_the_good_one_comes_back(case: Case) -> None:
    """Two damaged replicas start first, and no record is lost when the good one starts. Each damaged replica may be elected before it has
    opened its log; the other one then truncates its log at the damage. A replica that opens its log after another one was elected truncates
    its log immediately.
    """
    case.kill(is_at_once=True)
    second, good = case.others
    flip_bit(case)
    path = case.directory_on(second) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 10] ^= 0x10
    path.write_bytes(data)
    for number in (case.leader, second):
        broker = case.cluster.brokers[number]
        broker.start()
        found = re.compile(rf"{re.escape(case.topic)}-0( is not available|: cut everything from offset)")
        eventually(lambda broker=broker, found=found: found.search(broker.log_text()), WAIT_SECONDS)
    case.cluster.brokers[good].start()
    case.check("damage")
    case.write(BATCH)
    case.check("cut everything from offset")


def test_a_damaged_leader_that_is_the_controller_keeps_the_others_eligible_with_a_minimum_of_one(case: Case) -> None:
    """With `min.insync.replicas=1` the leader alone is sufficient. It starts first, so it becomes the controller and elects itself; the
    other replicas must stay eligible.
    """
    case.set_in_sync_min(1)
    case.kill(is_at_once=True)
    remove_directory(case)
    first = case.cluster.brokers[case.leader]
    first.start()
    eventually(lambda: case.cluster.controller() == case.leader, WAIT_SECONDS)
    case.start_others()
    case.check("missing")


def test_an_older_copy_of_the_whole_log_directory_leads_nothing(case: Case) -> None:
    leader = case.cluster.brokers[case.leader]
    leader.kill()
    copy = leader.data.with_name(f"{leader.data.name}-copy")
    shutil.copytree(leader.data, copy)
    leader.start()
    case.cluster.wait_until_healthy(case.topic)
    case.lead()
    case.write()
    case.kill(is_at_once=True)
    shutil.rmtree(leader.data)
    copy.rename(leader.data)
    case.start()
    case.check_records("has an older copy of its log directory", str(leader.data))
