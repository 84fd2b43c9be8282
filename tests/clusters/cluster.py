"""Runs three broker processes on a ZooKeeper, and a stock producer that continues through all faults; at the end it checks the log against
the delivery reports. The producer is librdkafka's, idempotent, with `acks=all`. Every record that it reports as delivered must be in the
log once, at the reported offset, and in the order of sending. It reports no offset for a batch if the batch's own answer was lost or an
error, but a later batch was acknowledged: the later sequence number proves that the earlier batch is in the log.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from ottla.testing.zookeeper_process import ZooKeeperEnsemble, ZooKeeperProcess, free_port
from tests.clients.broker_process import BrokerProcess, eventually
from tests.fakes.tcp_proxy import TcpProxy

PATIENT = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",  # librdkafka 2.16 drops its brokers when none is up, and still waits for a dropped one
}
SESSION_TIMEOUT_MS = 4_000
WAIT_SECONDS = 120
PARTITIONS = 3
ROUND_SECONDS = 0.04
"""A load sends in rounds: records that come one by one would cost all brokers several times as much processor time."""

ROUND_RECORDS = 8
"""Records of a round for each partition."""

BATCH_RECORDS = 4
"""Each round has two batches for a partition, both of which may be in flight when a broker is killed."""


class Cluster:
    """`size` brokers with ids from 1 on. They are started together, and ended even if a test fails. With `has_proxies` each broker connects
    to ZooKeeper through a proxy (`to_zookeeper`), and clients and other brokers connect to it through another one (`to_broker`). `protocol`
    is the security protocol of their only listener, and `client` has the client options for it.
    """

    def __init__(
        self, directory: Path, zookeeper: ZooKeeperProcess | ZooKeeperEnsemble, size: int = 3, *, has_proxies: bool = False,
        protocol: str = "PLAINTEXT", client: Mapping[str, object] | None = None, **settings: object,
    ) -> None:  # fmt: skip
        self.zookeeper = zookeeper
        self.client = {**PATIENT, **(client or {})}
        self.to_zookeeper: dict[int, TcpProxy] = {}
        self.to_broker: dict[int, TcpProxy] = {}
        self.chroot = f"/{directory.name}"
        common = {
            "zookeeper.connect": zookeeper.connect + self.chroot,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "min.insync.replicas": 2,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
            "group.initial.rebalance.delay.ms": 0,
            "replica.lag.time.max.ms": 3_000,
            **{name if "." in name else name.replace("_", "."): value for name, value in settings.items()},
        }
        self.brokers: dict[int, BrokerProcess] = {}
        for number in range(1, size + 1):
            values = {"broker.id": number, **common}
            port = free_port()
            if protocol != "PLAINTEXT":
                values["listeners"] = f"{protocol}://127.0.0.1:{port}"
            if has_proxies:
                assert isinstance(zookeeper, ZooKeeperProcess), "a proxy has one server behind it"
                self.to_zookeeper[number], self.to_broker[number] = TcpProxy(zookeeper.port), TcpProxy(port)
                values["zookeeper.connect"] = self.to_zookeeper[number].address + self.chroot
                values["advertised.listeners"] = f"PLAINTEXT://{self.to_broker[number].address}"
            broker = BrokerProcess(directory / f"broker-{number}", [f"{name}={value}" for name, value in values.items()])
            broker.port = port
            self.brokers[number] = broker

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> Cluster:
        """Starts all brokers at the same time."""
        threads = [threading.Thread(target=broker.start) for broker in self.brokers.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(broker.is_running for broker in self.brokers.values()), self.logs()
        return self

    def stop(self) -> None:
        """Stops all brokers cleanly, one after the other; each must end by itself."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.stop()

    def kill(self) -> None:
        for broker in self.brokers.values():
            if broker.process is not None:
                broker.kill()

    def close_proxies(self) -> None:
        for proxy in [*self.to_zookeeper.values(), *self.to_broker.values()]:
            proxy.close()

    def logs(self) -> str:
        return "\n".join(f"--- broker {number}\n{broker.log_tail(30)}" for number, broker in self.brokers.items())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.addresses, **self.client})

    def create_topic(self, name: str, partitions: int = PARTITIONS, replicas: int = 3) -> None:
        admin = self.admin()  # kept in a variable, because a client without references is closed
        admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(WAIT_SECONDS)

    def metadata(self, topic: str) -> dict[int, Any]:
        """Returns the partitions of a topic by their number; empty while no broker answers."""
        try:
            found = self.admin().list_topics(topic, timeout=5).topics[topic]
        except KafkaException:
            return {}
        return dict(found.partitions) if found.error is None else {}

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Waits until the partition has a leader."""
        leaders: list[int] = []

        def has_leader() -> bool:
            found = self.metadata(topic).get(partition)
            leaders.append(found.leader if found is not None else -1)
            return leaders[-1] > 0

        eventually(has_leader, WAIT_SECONDS)
        return leaders[-1]

    def wait_until_healthy(self, topic: str) -> None:
        """Waits until every partition has a leader and all its replicas are in sync."""

        def is_healthy() -> bool:
            found = self.metadata(topic)
            return bool(found) and all(part.leader > 0 and len(part.isrs) == len(part.replicas) for part in found.values())

        try:
            eventually(is_healthy, WAIT_SECONDS)
        except AssertionError:
            raise AssertionError(f"{self.metadata(topic)}\n{self.logs()}") from None

    @contextlib.contextmanager
    def nodes(self) -> Iterator[KazooClient]:
        """Yields a client of ZooKeeper below the cluster's chroot."""
        client = KazooClient(self.zookeeper.connect + self.chroot)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def controller(self) -> int:
        """Waits until there is a controller, and returns its broker id."""
        with self.nodes() as client:
            eventually(lambda: client.exists("/controller"), WAIT_SECONDS)
            return int(json.loads(client.get("/controller")[0])["brokerid"])

    def registered(self) -> list[int]:
        with self.nodes() as client:
            return sorted(map(int, client.get_children("/brokers/ids")))

    def epochs(self) -> dict[int, int]:
        """Returns the broker epoch of each registration."""
        with self.nodes() as client:
            numbers = map(int, client.get_children("/brokers/ids"))
            return {number: client.get(f"/brokers/ids/{number}")[1].czxid for number in numbers}


class Load:
    """A producer that sends numbers until it is stopped.

    `delivered[partition]` has (offset or None, number) in the order of the reports.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.delivered: dict[int, list[tuple[int | None, int]]] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._is_stopping = False
        self._producer = Producer({
            "bootstrap.servers": cluster.addresses, "enable.idempotence": True, "acks": "all", "linger.ms": 2, **cluster.client,
            "batch.num.messages": BATCH_RECORDS, "message.timeout.ms": WAIT_SECONDS * 1000, "retry.backoff.ms": 20,
            "topic.metadata.refresh.interval.ms": 1000, "socket.timeout.ms": 10_000, "queue.buffering.max.messages": 2_000,
        })  # fmt: skip
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def count(self) -> int:
        return sum(map(len, self.delivered.values()))

    def __enter__(self) -> Load:
        self._thread.start()
        self.flows()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._thread.join(WAIT_SECONDS)

    def flows(self, more: int = 100) -> None:
        """Waits until this number of further records has been delivered to each partition."""
        before = {partition: len(found) for partition, found in self.delivered.items()}

        def has_flowed() -> bool:
            return all(len(self.delivered.get(index, ())) >= before.get(index, 0) + more for index in range(PARTITIONS))

        try:
            eventually(has_flowed, WAIT_SECONDS)
        except AssertionError:
            counts = {partition: len(found) for partition, found in self.delivered.items()}
            raise AssertionError(f"{counts}, failed {self.failed[:3]}\n{self.cluster.logs()}") from None

    def _run(self) -> None:
        while not self._is_stopping:
            due = time.monotonic() + ROUND_SECONDS
            with contextlib.suppress(BufferError):
                for _ in range(ROUND_RECORDS * PARTITIONS):
                    self._send()
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(WAIT_SECONDS)

    def _send(self) -> None:
        number = self.sent
        self._producer.produce(self.topic, str(number).encode(), partition=number % PARTITIONS, on_delivery=self._reported(number))
        self.sent += 1

    def _reported(self, number: int) -> Callable[[KafkaError | None, Any], None]:
        def report(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.failed.append(f"{number}: {error.str()}")
                return
            self.delivered.setdefault(message.partition(), []).append((message.offset(), number))

        return report

    def verdict(self) -> str:
        """Reads the topic with a stock consumer and compares it with the delivery reports. Returns the differences; empty if there are
        none.
        """
        if self.failed or self.count != self.sent:
            return f"{self.count} of {self.sent} delivered, given up: {self.failed[:3]}\n{self.cluster.logs()}"
        for partition in range(PARTITIONS):
            found = read_partition(self.cluster, self.topic, partition)
            delivered = self.delivered[partition]
            offsets = {number: offset for offset, number in found.items()}
            lost = [entry for entry in delivered if entry[1] not in offsets or entry[0] not in (None, offsets[entry[1]])]
            if lost:
                return f"partition {partition}: {len(lost)} of {len(delivered)} are lost, {lost[:5]}\n{self.cluster.logs()}"
            numbers = [found[offset] for offset in sorted(found)]
            if numbers != sorted(set(numbers)):
                return f"partition {partition}: duplicates or another order\n{self.cluster.logs()}"
        return ""


def read_partition(cluster: Cluster, topic: str, partition: int) -> dict[int, int]:
    """Returns offset and number of each record."""
    consumer = Consumer({
        "bootstrap.servers": cluster.addresses, "group.id": "verdict", "enable.auto.commit": False, **cluster.client,
        "enable.partition.eof": True, "isolation.level": "read_uncommitted",
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: dict[int, int] = {}
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while True:
            assert time.monotonic() < deadline, f"{topic}-{partition} cannot be read\n{cluster.logs()}"
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[message.offset()] = int(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()
