"""Several brokers over one model of ZooKeeper. Each has a session, a metadata cache and a controller; control messages between them are
calls."""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.broker_ports import Ages
from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.config import load
from ottla.base.control_messages import ControlMessage
from ottla.base.errors import ErrorCode
from ottla.cluster.member import ClusterMember
from ottla.cluster.metadata_cache import MetadataCache
from ottla.cluster.registration import Registration
from ottla.controller.api import NewTopic, TopicResult
from tests.controller.cluster import RecordingReplicas
from tests.fakes.memory_store import Lease, MemoryStore
from tests.fakes.randomness import SeededRandom
from tests.fakes.world import World

CLUSTER_ID = "test-cluster"


class Member:
    """One broker."""

    def __init__(self, world: Brokers, broker_id: int, store: MemoryStore) -> None:
        self.world = world
        self.broker_id = broker_id
        self.store = store
        self.replicas = RecordingReplicas()
        self.cache = MetadataCache()
        self.refusals: list[str] = []
        config, _ = load(assignments=[f"broker.id={broker_id}"])
        self.member = ClusterMember(
            store=store,
            config=config,
            clock=world.timers.clock,
            timers=world.timers,
            ages=Ages(world.timers.clock, world.timers),
            random=SeededRandom(broker_id),
            metadata=self.cache,
            replicas=self.replicas,
            later=world.timers.call_soon,
            remote=world,
        )
        self.controller = self.member.controller
        registration = Registration(
            broker_id=broker_id,
            endpoints={"PLAINTEXT": ("127.0.0.1", 9092 + broker_id)},
            protocols={"PLAINTEXT": "PLAINTEXT"},
            cluster_id=CLUSTER_ID,
        )
        world.members[broker_id] = self
        self.readied = 0
        self.member.call_when_ready(self._ready)
        self.member.start(registration, on_registered=lambda: None, refused=self.refusals.append)

    def _ready(self) -> None:
        self.readied += 1

    def create(self, name: str, *, partitions: int = 2, replicas: int = 1) -> list[TopicResult]:
        """Returns a list that gets the answer when the world has settled."""
        answers: list[TopicResult] = []
        self.controller.create_topics(
            [NewTopic(name=name, num_partitions=partitions, replication_factor=replicas)], False, answers.extend
        )
        return answers


class Brokers(World):
    """The cluster. With `is_timed`, requests to the metadata store take time, so a test can stop between them. With a `session_timeout_ms`
    they also renew the sessions' leases."""

    def __init__(
        self, count: int, *, is_timed: bool = False, delay_ms: Callable[[], int] = lambda: 1, session_timeout_ms: int = 0
    ) -> None:
        self.sent: list[tuple[int, ControlMessage]] = []
        self.members: dict[int, Member] = {}
        for broker_id in range(count):
            lease = Lease(self.clock, session_timeout_ms) if session_timeout_ms else None
            Member(self, broker_id, self.model.session(self.timers if is_timed else None, delay_ms, lease=lease))
            self.settle()

    def settle(self, ms: int = 5_000) -> None:
        self.timers.advance(ms)

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Callable[[ErrorCode], object]) -> None:
        """Implements `BrokerMessenger` for all members."""
        self.sent.append((broker.broker_id, message))
        self.members[broker.broker_id].member.receiver.receive(message, done)

    def active(self) -> list[int]:
        return [broker_id for broker_id, member in self.members.items() if member.controller.is_active]

    @property
    def controller(self) -> Member:
        (broker_id,) = self.active()
        return self.members[broker_id]
