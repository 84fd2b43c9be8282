"""Runs the production node (the broker's code) on a simulated machine, with a scripted controller. A world has one or two brokers, which
lead the partitions by a fixed layout. The power of each can be cut at any moment, also in the middle of a request, right after any
operation on its disk: unsynced bytes are lost in part or completely (`MemDisk.crash`), the old process executes nothing more, and none of
its answers is sent. `flush.on.ack` is on, so acknowledged records must survive. The controller is not simulated here: each start of a
broker raises the leader epochs of its partitions, and all running brokers get the metadata.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ottla.base import ports as store_ports
from ottla.base.broker_ports import Ages, Ports
from ottla.base.cluster_metadata import BrokerMetadata, PartitionMetadata, TopicMetadata
from ottla.base.config import load
from ottla.base.control_messages import LeaderAndIsr, ReplicaRole, UpdateMetadata
from ottla.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.metadata_store import znodes
from ottla.replication.partition import Partition
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.node import Node
from ottla.storage.log import Log
from ottla.transactions.markers import LocalMarkers, Written
from ottla.transactions.metadata import Marker
from tests.fakes.clock import ManualClock
from tests.fakes.coordinator_settings import transaction_settings
from tests.fakes.memory_store import MemoryStore, ZooKeeperModel
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers
from tests.sim.machine import THREAD_MS, FusedDisk, LifeThreads, LifeTimers
from tests.sim.network import Host, SimNetwork

TOPICS = {"t": 2, "in": 1, GROUP_METADATA_TOPIC: 1, TRANSACTION_STATE_TOPIC: 1}
KEYS = [TopicPartition(name, index) for name, count in TOPICS.items() for index in range(count)]
LAYOUTS = ((1, 1, 1, 1, 1), (1, 2, 1, 2, 1), (2, 1, 1, 1, 2), (1, 1, 1, 2, 2))
"""Which broker leads each of KEYS."""
SETTINGS = transaction_settings(timeout_scan_interval_ms=500, completion_wait_ms=100)
TOPIC_CONFIGS = {"internal.segment.bytes": "2048", "index.interval.bytes": "256"}
CHECKPOINT_MS = (30, 400)
"""How often aids to recovery are written and checkpoints: what lies below them the next life takes from snapshots and indexes."""
STRIKES = 0.01
"""How many records of the coordinator are followed by a power cut at once."""
SLOW_ADMISSION = 0.25
ADMISSION_MS = (20, 400)
LATE_METADATA = 0.3
LATE_METADATA_MS = (1, 300)
LISTENER, PORT = "PLAINTEXT", 9092
BROKER_EPOCH = 0
ASSIGNMENTS = (
    "log.dirs=/data",
    "zookeeper.connect=model:2181",
    "ottla.flush.on.ack=true",
    "request.timeout.ms=1000",
    "offsets.load.buffer.size=4096",
    "transaction.state.log.load.buffer.size=4096",
    "share.coordinator.load.buffer.size=4096",
    "log.cleaner.enable=false",
    "log.retention.ms=-1",
)
CLUSTER_ID = "simulated-cluster-id-0"


def store_model(layout: Mapping[TopicPartition, int] | None = None) -> ZooKeeperModel:
    """Returns a metadata store with the cluster and the partitions of a layout, so that they are not treated as deleted."""
    content = {znodes.CLUSTER_ID: znodes.cluster_id_bytes(CLUSTER_ID), znodes.CLUSTER_SECRET: bytes(range(32)).hex().encode()}
    for key, leader in (layout or {}).items():
        state = PartitionMetadata(index=key.partition, leader=leader, leader_epoch=0, replicas=(leader,), isr=(leader,))
        content[znodes.state_path(*key)] = znodes.partition_bytes(state)
    return ZooKeeperModel({path: store_ports.StoreNode(data=data, version=0, czxid=0) for path, data in content.items()})


class Place(Protocol):
    """The interface of the world for its brokers."""

    seed: int
    chance: random.Random
    clock: ManualClock
    timers: ManualTimers
    network: SimNetwork
    layout: dict[TopicPartition, int]
    store: ZooKeeperModel

    @property
    def brokers(self) -> Mapping[int, SimBroker]: ...

    def strike(self, broker: Any, delay_ms: int) -> None: ...


class SimNode(Node):
    """The node with a scripted controller in place of registration and election."""

    def __init__(self, broker: SimBroker, ports: Ports, directory: LogDirectoryState) -> None:
        self._broker = broker
        listener = f"listeners={LISTENER}://{host_of(broker.broker_id)}:{PORT}"
        config = load(assignments=(f"broker.id={broker.broker_id}", listener, *ASSIGNMENTS))[0]
        super().__init__(ports, config, [directory], on_broken_invariant=fail)

    def _make_partition(self, opened: Log, high_watermark: int) -> Partition:
        self._broker.recovered_ends[opened.topic_partition] = opened.log_end_offset
        return super()._make_partition(opened, high_watermark)

    def _register(self, on_refused: Callable[[str], object]) -> None:
        self.metadata.cluster_id = self.cluster_id
        self._serve()
        self._broker.publish()

    def _watched(self) -> list[int]:
        """Returns None: the scripted controller never fails, and no other controller is elected."""
        return []

    def _broker_epoch(self) -> int:
        """Returns the broker epoch of the scripted controller, because these brokers do not register."""
        return BROKER_EPOCH


def fail(error: AssertionError) -> None:
    raise error


def refuse(reason: str) -> None:
    raise AssertionError(reason)


def host_of(broker_id: int) -> str:
    return f"broker-{broker_id}"


class SimBroker:
    """A broker whose process ends and is started again; the disk and the leader epoch are kept."""

    topic_configs: Mapping[str, str] = TOPIC_CONFIGS

    def __init__(self, world: Any, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self._chance: random.Random = world.chance
        self.disk = FusedDisk(self, "/data")
        self.disk.on_change = self._on_change
        self.random = SeededRandom(world.seed + broker_id)
        self.epoch = -1
        self.is_up = False
        self.node: SimNode | None = None
        self.recovered_ends: dict[TopicPartition, int] = {}

    # Life

    def start(self) -> None:
        self.epoch += 1
        self.is_up = True
        self.node = None
        self.life = LifeTimers(self.world.timers)
        ports = Ports(
            clock=self.world.clock,
            timers=self.life,
            ages=Ages(self.world.clock, self.life),
            random=self.random,
            disk=self.disk,
            threads=LifeThreads(self.life, self._chance),
            network=Host(self.world.network, host_of(self.broker_id), self.life),
            store=MemoryStore(model=self.world.store),
        )
        self.node = SimNode(self, ports, LogDirectoryState(self.disk, "/data"))
        self.prepare(self.node)
        self.node.start(lambda: None, refuse)
        self.node.begin_turns()
        self._checkpoint_later()

    def prepare(self, node: SimNode) -> None:
        """Prepares the node before its first request."""
        node.transactions.configure(SETTINGS)
        node.transactions.admit = self._slow_admission(node.transactions.admit)  # type: ignore[method-assign]
        node.transactions.local_markers.write = JudgedMarkers(self, node.transactions.local_markers)  # type: ignore[method-assign]

    def _slow_admission(self, admit: Callable[..., None]) -> Callable[..., None]:
        """Sometimes delays the answers of coordinators, also of this broker, so that a marker may arrive before them."""

        def slow_admit(*arguments: Any) -> None:
            *asked, done = arguments
            delay_ms = self._chance.randint(*ADMISSION_MS) if self._chance.random() < SLOW_ADMISSION else 0
            admit(*asked, (lambda codes: self.life.call_later(delay_ms, lambda: done(codes))) if delay_ms else done)

        return slow_admit

    def crash(self) -> None:
        """Cuts the power."""
        self.is_up = False
        self.life.is_over = True
        self.node = None
        self.disk.fuse = None
        self.disk.crash(self.random)
        self.disk.is_without_power = False

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        if self.node is None:
            return {}
        return {partition.topic_partition: partition for partition in self.node.partitions.all()}

    def _on_change(self, operation: str, path: str) -> None:
        if operation == "write" and TRANSACTION_STATE_TOPIC in path and self._chance.random() < STRIKES:
            # Most errors are possible between a decision and its durability.
            self.world.strike(self, self._chance.randint(0, THREAD_MS[1]))
        self.disk.burn()

    def _checkpoint_later(self) -> None:
        self.life.call_later(self._chance.randint(*CHECKPOINT_MS), self._checkpoint)

    def _checkpoint(self) -> None:
        self._checkpoint_later()
        assert self.node is not None
        for partition in self.node.partitions.all():
            partition.log.write_recovery_aids(0)
        self.node.housekeeping.write_checkpoints()

    # The controller

    def publish(self) -> None:
        """Sends all running brokers the metadata of the partitions that this broker leads now, and sends this broker its replicas. The
        replicas usually follow the metadata, as from Ottla's controller; sometimes they precede it, as from Apache Kafka's controller.
        """
        topics = self._topics()
        brokers = [
            BrokerMetadata(broker_id=number, endpoints={LISTENER: (host_of(number), PORT)}, epoch=BROKER_EPOCH)
            for number in self.world.brokers
        ]
        metadata = UpdateMetadata(
            controller_id=1, controller_epoch=1, broker_epoch=BROKER_EPOCH, topics=topics, brokers=brokers, is_complete=True
        )
        delay_ms = self._chance.randint(*LATE_METADATA_MS) if self._chance.random() < LATE_METADATA else 0
        for broker in self.world.brokers.values():
            if broker.node is not None and not (delay_ms and broker is self):
                broker.node.member.receiver.receive(metadata, lambda _code: None)
        states = [
            ReplicaRole(
                topic=topic.name, topic_id=topic.topic_id, partition=partition, is_new=self.epoch == 0, configs=self.topic_configs
            )
            for topic in topics
            for partition in topic.partitions
            if partition.leader == self.broker_id
        ]
        assert self.node is not None
        message = LeaderAndIsr(controller_id=1, controller_epoch=1, broker_epoch=BROKER_EPOCH, states=states)
        receiver = self.node.member.receiver
        receiver.receive(message, lambda _code: None)
        if delay_ms:
            self.life.call_later(delay_ms, lambda: receiver.receive(metadata, lambda _code: None))

    def _topics(self) -> list[TopicMetadata]:
        found: dict[str, list[PartitionMetadata]] = {}
        for key, leader in self.world.layout.items():
            epoch = max(self.world.brokers[leader].epoch, 0)
            state = PartitionMetadata(index=key.partition, leader=leader, leader_epoch=epoch, replicas=(leader,), isr=(leader,))
            found.setdefault(key.topic, []).append(state)
        return [
            TopicMetadata(name=name, topic_id=topic_id_of(name), partitions=tuple(partitions), configs=self.topic_configs)
            for name, partitions in found.items()
        ]


def topic_id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")[:16]


class JudgedMarkers:
    """Judges each marker before it is written."""

    def __init__(self, broker: SimBroker, markers: LocalMarkers) -> None:
        self._broker = broker
        self._markers = markers

    def __call__(self, topic_partition: TopicPartition, marker: Marker, done: Written) -> None:
        self._broker.world.judge_marker(marker)
        LocalMarkers.write(self._markers, topic_partition, marker, done)
