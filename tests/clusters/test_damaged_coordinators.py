"""Committed offsets, open transactions and the states of share groups survive damage of one replica of every internal partition.

Broker 1 has a replica of each. All brokers are killed, its internal logs are damaged, and it starts first. Afterwards each group has its
last commit, each open transaction can still be committed, each share group continues at its state, and all replicas are in sync again.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition

from ottla.client.blocking.cluster import Cluster as ClientCluster
from ottla.client.core.admin import GROUP_RESOURCE, alter_configs
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster
from tests.clusters.conftest import running

INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
VICTIM = 1
GROUPS = 6
"""Enough for several partitions of each internal topic."""
SEGMENT_BYTES = 1_500


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    small = dict.fromkeys(
        ("offsets.topic.segment.bytes", "transaction.state.log.segment.bytes", "share.coordinator.state.topic.segment.bytes"), SEGMENT_BYTES
    )
    made = Cluster(
        tmp_path_factory.mktemp("coordinators"), zookeeper, **small, **{"share.coordinator.state.topic.num.partitions": 3},
    )  # fmt: skip
    with running(made):
        yield made


class Clients:
    """Consumers, transactions and share groups of one topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic, self.shared_topic = topic, f"{topic}-s"
        self.written = 0
        self.committed = 0
        self.shared = 0
        self.open: list[Producer] = []

    def settings(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": self.cluster.addresses, **self.cluster.client, **more}

    def write(self, count: int) -> None:
        producer = Producer(self.settings(acks="all"))
        for number in range(self.written, self.written + count):
            producer.produce(self.shared_topic, b"%d" % number, partition=0)
        assert producer.flush(WAIT_SECONDS) == 0
        self.written += count

    def commit(self) -> None:
        """Makes many commits, so that the logs have several segments."""
        for group in range(GROUPS):
            consumer = Consumer(self.settings(**{"group.id": f"{self.topic}-{group}"}))
            for offset in range(self.committed + 1, self.committed + 21):
                consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)
            consumer.close()
        self.committed += 20

    def begin(self) -> None:
        """Begins transactions that stay open."""
        for _ in range(GROUPS):
            producer = Producer(self.settings(**{"transactional.id": f"{self.topic}-{len(self.open)}", "transaction.timeout.ms": 600_000}))
            producer.init_transactions(WAIT_SECONDS)
            for _ in range(3):
                producer.begin_transaction()
                producer.produce(self.topic, b"0", partition=0)
                producer.commit_transaction(WAIT_SECONDS)
            producer.begin_transaction()
            producer.produce(self.topic, b"1", partition=0)
            assert producer.flush(WAIT_SECONDS) == 0
            self.open.append(producer)

    def share(self) -> None:
        """Makes each share group acquire and accept all existing records."""
        for group in range(GROUPS):
            name = f"share-{self.topic}-{group}"
            with ClientCluster(self.cluster.addresses) as client:
                alter_configs(client, GROUP_RESOURCE, name, changes={"share.auto.offset.reset": "earliest"})
            assert self.take(name, self.written - self.shared) == list(range(self.shared, self.written))
        self.shared = self.written

    def take(self, group: str, count: int) -> list[int]:
        found: list[int] = []
        settings = self.settings(**{"group.id": group, "share.acknowledgement.mode": "implicit"})
        with ShareConsumer(settings) as consumer:
            consumer.subscribe([self.shared_topic])

            def has_all() -> bool:
                found.extend(int(message.value()) for message in consumer.poll(0.5))
                return len(found) >= count

            eventually(has_all, WAIT_SECONDS)
            assert all(error is None for error in consumer.commit_sync(30.0).values())
        return found

    def finish(self) -> None:
        """Commits the open transactions."""
        for producer in self.open:
            producer.commit_transaction(WAIT_SECONDS)
        consumer = Consumer(self.settings(**{"group.id": "verdict", "isolation.level": "read_committed"}))
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[int] = []

        def has_all() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(int(message.value()))
            return len(found) == 4 * GROUPS

        eventually(has_all, WAIT_SECONDS)
        consumer.close()
        assert sorted(found) == [0] * 3 * GROUPS + [1] * GROUPS

    def check(self) -> None:
        for topic in INTERNAL:
            self.cluster.wait_until_healthy(topic)
        for group in range(GROUPS):
            consumer = Consumer(self.settings(**{"group.id": f"{self.topic}-{group}"}))
            (found,) = consumer.committed([TopicPartition(self.topic, 0)], WAIT_SECONDS)
            consumer.close()
            assert found.offset == self.committed, f"group {group}\n{self.cluster.logs()}"


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start()
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-40:]
    for each in (name, f"{name}-s"):
        cluster.create_topic(each, 1)
        cluster.wait_until_healthy(each)
    return name


def internal_directories(broker: BrokerProcess) -> list[Path]:
    found = [path for path in sorted(broker.data.iterdir()) if path.name.startswith(tuple(f"{name}-" for name in INTERNAL))]
    assert found
    return found


def segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.log") if path.stat().st_size)


def remove_directories(broker: BrokerProcess, _copy: Path) -> None:
    for directory in internal_directories(broker):
        shutil.rmtree(directory)


def remove_first_segments(broker: BrokerProcess, _copy: Path) -> None:
    for directory in internal_directories(broker):
        for path in segments(directory)[:1]:
            path.unlink()


def flip_bits(broker: BrokerProcess, _copy: Path) -> None:
    """Flips bits in the middle of each active segment."""
    for directory in internal_directories(broker):
        for path in segments(directory)[-1:]:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0x10
            path.write_bytes(data)


def roll_back(broker: BrokerProcess, copy: Path) -> None:
    for directory in internal_directories(broker):
        shutil.rmtree(directory)
        shutil.copytree(copy / directory.name, directory)


@pytest.mark.parametrize(
    "damage",
    [
        flip_bits,
        roll_back,
        pytest.param(remove_directories, marks=pytest.mark.night),
        pytest.param(remove_first_segments, marks=pytest.mark.night),
    ],
)
def test_damage_of_one_replica_loses_no_state_of_a_coordinator(
    cluster: Cluster, topic: str, tmp_path: Path, damage: Callable[[BrokerProcess, Path], None]
) -> None:
    clients, victim = Clients(cluster, topic), cluster.brokers[VICTIM]
    clients.write(4)
    clients.share()
    clients.commit()
    for name in INTERNAL[:1] + INTERNAL[2:]:
        cluster.wait_until_healthy(name)
    victim.kill()
    shutil.copytree(victim.data, tmp_path / "copy")
    victim.start()
    clients.begin()
    for name in INTERNAL:
        cluster.wait_until_healthy(name)
    clients.commit()
    for broker in cluster.brokers.values():
        os.kill(broker.pid, signal.SIGKILL)  # before any of them notices that another one has been killed
    for broker in cluster.brokers.values():
        broker.kill()
    if damage is roll_back:
        for directory in internal_directories(victim):
            if not (tmp_path / "copy" / directory.name).exists():
                shutil.copytree(directory, tmp_path / "copy" / directory.name)
    damage(victim, tmp_path / "copy")
    victim.start()
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start()
    clients.check()
    clients.finish()
    clients.write(3)
    clients.share()
