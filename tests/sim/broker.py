"""A broker on a disk in memory: real logs, partitions, hosts and handlers; sockets, threads and the controller are left out.

A world has one broker or two that share the partitions among them by a fixed layout. The power of each can be cut at any moment, also in
the middle of a request, right after any operation on its disk: what was not synced is lost in part or whole (`MemDisk.crash`), nothing of
the old process runs on, and nobody who waited hears an answer. `flush.on.ack` is on, so what was acknowledged must survive.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError
from ottla.base.log_config import LogConfig
from ottla.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.partition import Partition
from ottla.requests.context import ConnectionInfo, Pending, RequestContext
from ottla.security.authorizer import AllowClients
from ottla.server.hosts import GroupHosts, TransactionHosts
from ottla.server.waiters import Waiters
from ottla.storage.log import Log
from ottla.transactions.markers import LocalMarkers, Marker, MarkerDelivery, Written
from ottla.transactions.producer_ids import ProducerIds
from ottla.transactions.remote import OtherCoordinators
from ottla.transactions.routing import TransactionCoordinators
from ottla.wire.messages.fetch import FetchResponse
from tests.fakes.coordinator_settings import group_settings, transaction_settings
from tests.fakes.disk import MemDisk
from tests.fakes.memory_store import MemoryStore
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers
from tests.sim.network import Call
from tests.sim.peers import SimPeers

if TYPE_CHECKING:
    from tests.sim.world import World

TOPICS = {"t": 2, "in": 1, GROUP_METADATA_TOPIC: 1, TRANSACTION_STATE_TOPIC: 1}
KEYS = [TopicPartition(name, index) for name, count in TOPICS.items() for index in range(count)]
LAYOUTS = ((1, 1, 1, 1, 1), (1, 2, 1, 2, 1), (2, 1, 1, 1, 2), (1, 1, 1, 2, 2))
"""Which broker leads each of KEYS."""
SETTINGS = transaction_settings(timeout_scan_interval_ms=500, completion_wait_ms=100)
LOG_CONFIG = LogConfig(segment_bytes=2_048, index_interval_bytes=256)
CHECKPOINTS = 0.3
"""After how many flushes aids to recovery are written and the recovery point is noted: what lies below it the next life takes from
snapshots and indexes."""
LOAD_BYTES = 4_096
FLUSH_MS = (0, 25)
STRIKES = 0.01
"""How many records of the coordinator are followed by a power cut at once."""
CONFIG = BrokerConfig()


class PowerCut(BaseException):
    """Goes through everything: no code of the old process may run any more."""

    def __init__(self, broker: SimBroker) -> None:
        super().__init__()
        self.broker = broker


class Topics:
    """What the controller would have told: every topic exists, and who leads it never changes."""

    def __init__(self, layout: dict[TopicPartition, int]) -> None:
        self.brokers: dict[int, Any] = {}
        self._layout = layout
        self._topics = {
            name: SimpleNamespace(name=name, topic_id=name.encode().ljust(16, b"\0")[:16], partitions=list(range(count)))
            for name, count in TOPICS.items()
        }

    def topic(self, name: str) -> Any:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Any:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def topics(self) -> Any:
        return self._topics.values()

    def partition(self, topic: str, index: int) -> Any:
        return index if TopicPartition(topic, index) in self._layout else None

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self._layout.get(TopicPartition(topic, partition))


class LifeTimers:
    """Timers that die with the process that made them."""

    def __init__(self, timers: ManualTimers) -> None:
        self._timers = timers
        self.is_over = False

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> Any:
        return self._timers.call_later(delay_ms, lambda: None if self.is_over else function())

    def call_soon(self, function: Callable[[], object]) -> None:
        self.call_later(0, function)


class JudgedMarkers(LocalMarkers):
    """Looks at each marker before it is written."""

    def __init__(self, world: World, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._world = world

    def write(self, topic_partition: TopicPartition, marker: Marker, done: Written) -> None:
        self._world.judge_marker(marker)
        super().write(topic_partition, marker, done)


class SimBroker:
    """The process comes and goes; disk, metadata store and leader epoch stay."""

    def __init__(self, world: World, broker_id: int, store: MemoryStore) -> None:
        self.world = world
        self.broker_id = broker_id
        self._chance = world.chance
        self.disk = MemDisk("/data")
        self.disk.on_change = self._burn_fuse
        self.fuse: int | None = None
        """After so many operations on the disk the power is cut."""
        self._store = store
        self.random = SeededRandom(world.seed + broker_id)
        self.epoch = -1
        self.is_up = False
        self.partitions: dict[TopicPartition, Partition] = {}
        self.recovered_ends: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.recovery_points: dict[TopicPartition, int] = {}
        self._client = ConnectionInfo(identity="c", host="10.0.0.1", listener="PLAINTEXT")
        self._peer = ConnectionInfo(identity="p", host="10.0.0.2", listener="PLAINTEXT")
        self._peer.is_inter_broker = True

    # Life

    def start(self) -> None:
        clock, topics = self.world.clock, Topics(self.world.layout)
        self.epoch += 1
        self.is_up = True
        self.life = timers = LifeTimers(self.world.timers)
        self._flushing: set[TopicPartition] = set()
        self.partitions = {}
        for key in KEYS:
            if self.world.layout[key] == self.broker_id:
                self.partitions[key] = self._open(key)
        self.groups = GroupHosts(clock, timers, self.random, topics, group_settings(initial_rebalance_delay_ms=3_000))  # type: ignore[arg-type]
        markers, peers = JudgedMarkers(self.world, self.get, self.groups.apply_marker, clock), SimPeers(self, timers)
        self.transactions = TransactionCoordinators(
            partition_count=lambda: 1,
            group_partition=self.groups.partition_for,
            settings=SETTINGS,
            producer_ids=ProducerIds(self._store, self.broker_id),
            markers=MarkerDelivery(self.broker_id, markers, topics, peers, timers),
            local_markers=markers,
            timers=timers,
            elsewhere=OtherCoordinators(self.broker_id, topics, peers),
        )
        self._context: Any = SimpleNamespace(
            broker_id=self.broker_id,
            clock=clock,
            timers=timers,
            config=CONFIG,
            metadata=topics,
            partitions=SimpleNamespace(get=self.get, topic_name=lambda topic_id: None),
            fetch_sessions=FetchSessions(self.random, 10),
            groups=self.groups,
            transactions=self.transactions,
            waiters=Waiters(timers),
            authorizer=AllowClients(),
        )
        transaction_hosts = TransactionHosts(clock, timers, self.transactions)
        for key, partition in self.partitions.items():
            if key.topic == GROUP_METADATA_TOPIC:
                self.groups.lead(partition, LOAD_BYTES)
            elif key.topic == TRANSACTION_STATE_TOPIC:
                transaction_hosts.lead(partition, LOAD_BYTES)

    def crash(self) -> None:
        """The power is cut."""
        self.is_up = False
        self.fuse = None
        self.life.is_over = True
        self.partitions = {}
        self.disk.crash(self.random)

    def _burn_fuse(self, operation: str, path: str) -> None:
        if operation == "write" and TRANSACTION_STATE_TOPIC in path and self._chance.random() < STRIKES:
            # Between a decision and its durability is where most can go wrong.
            self.world.strike(self, self._chance.randint(0, FLUSH_MS[1]))
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                raise PowerCut(self)

    def _open(self, key: TopicPartition) -> Partition:
        log = Log.open(
            self.disk,
            f"/data/{key}",
            key,
            LOG_CONFIG,
            now_ms=self.world.clock.wall_ms(),
            was_clean=False,
            log_start_offset=self.log_starts.get(key, 0),
            recovery_point=self.recovery_points.get(key, 0),
        )
        self.recovered_ends[key] = log.log_end_offset
        partition = Partition(
            log,
            broker_id=self.broker_id,
            is_flush_on_ack=True,
            request_flush=self._request_flush,
            is_verification_required=key.topic == "t",
        )
        partition.become_leader(
            leader_epoch=self.epoch,
            partition_epoch=0,
            replicas=[self.broker_id],
            isr=[self.broker_id],
            now_ms=self.world.clock.monotonic_ms(),
        )
        return partition

    def _request_flush(self, partition: Partition) -> None:
        """Group commit: one flush at a time, which serves all that came before it began."""
        key = partition.topic_partition
        if key in self._flushing:
            return
        self._flushing.add(key)

        def flush() -> None:
            self._flushing.discard(key)
            end = partition.log.log_end_offset
            partition.log.flush()
            if self._chance.random() < CHECKPOINTS:
                partition.log.write_recovery_aids(0)
                self.recovery_points[key] = partition.log.recovery_point
            partition.on_flushed(end)

        self.life.call_later(self._chance.randint(*FLUSH_MS), flush)

    # Requests

    def get(self, topic: str, partition: int) -> Partition | None:
        return self.partitions.get(TopicPartition(topic, partition))

    def handle(self, call: Call, answered: Callable[[Any], None], *, is_peer: bool = False) -> None:
        if not self.is_up:
            return
        life = self.life

        def alive(answer: Any) -> None:
            if not life.is_over:
                answered(_on_the_wire(answer))

        request = RequestContext(call.version, "sim", self._peer if is_peer else self._client)
        try:
            answer = call.handler.handle(self._context, request, call.body())
        except ApiError as error:
            raise AssertionError(f"a handler let {error} out") from error
        if isinstance(answer, Pending):
            answer.then(alive)
        elif answer is not None:
            alive(answer)


def _on_the_wire(answer: Any) -> Any:
    """Records are read as the answer leaves, as a socket does."""
    if isinstance(answer, FetchResponse):
        for topic in answer.responses:
            for partition in topic.partitions:
                if hasattr(partition.records, "read"):
                    partition.records = bytes(partition.records.read())
    return answer
