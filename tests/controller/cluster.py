"""A controller over a store in memory, with a listener that records its calls: what most tests of this folder start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.cluster_metadata import BrokerMetadata, BrokerPut, Change
from ottla.base.config import BrokerConfig
from ottla.base.control_messages import ReplicaRole, StoppedReplica, UpdateMetadata
from ottla.cluster.member import ClusterMember
from ottla.cluster.metadata_cache import MetadataCache
from ottla.cluster.registration import Registration
from ottla.controller.api import NewTopic, TopicResult
from ottla.controller.state import ClusterState
from tests.fakes.memory_store import MemoryStore
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers


class RecordingReplicas:
    """A `ReplicaListener` that records its calls."""

    def __init__(self) -> None:
        self.states: list[ReplicaRole] = []
        self.stopped: list[StoppedReplica] = []
        self.updated: list[str] = []
        self.removed: list[str] = []
        self.configs: list[tuple[int, str]] = []
        self.is_settled = True
        self.waiting: list[Callable[[], object]] = []

    def on_leader_and_isr(self, states: Sequence[ReplicaRole]) -> None:
        self.states += states

    def on_stop_replica(self, stopped: Sequence[StoppedReplica]) -> None:
        self.stopped += stopped

    def call_when_settled(self, function: Callable[[], object]) -> None:
        if self.is_settled:
            function()
        else:
            self.waiting.append(function)

    def on_update_metadata(self, topics: Sequence[str], removed: Sequence[str]) -> None:
        self.updated += topics
        self.removed += removed

    def on_configs(self, resource_type: int, name: str) -> None:
        self.configs.append((resource_type, name))


class Cluster:
    """One broker, its controller and its store."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        config: BrokerConfig | None = None,
        *,
        cluster_id: str = "test-cluster",
        timers: ManualTimers | None = None,
    ) -> None:
        self.store = store if store is not None else MemoryStore()
        self.config = config if config is not None else BrokerConfig()
        self.replicas = RecordingReplicas()
        self.timers = timers if timers is not None else ManualTimers()
        self.later: list[Callable[[], object]] | None = None
        self.cache = MetadataCache()
        self.member = ClusterMember(
            store=self.store,
            config=self.config,
            clock=self.timers.clock,
            timers=self.timers,
            random=SeededRandom(1),
            metadata=self.cache,
            replicas=self.replicas,
            later=self._call_later,
        )
        self.loop = self.member.controller
        self.is_started = False
        self.refusals: list[str] = []
        registration = Registration(
            broker_id=self.config.this_broker_id,
            endpoints={"PLAINTEXT": ("127.0.0.1", 9092)},
            protocols={"PLAINTEXT": "PLAINTEXT"},
            cluster_id=cluster_id,
        )
        self.member.call_when_ready(self._started)
        self.member.start(registration, on_registered=lambda: None, refused=self.refusals.append)

    def _started(self) -> None:
        self.is_started = True

    def _call_later(self, function: Callable[[], object]) -> None:
        """At once, unless the test keeps what is to be called later."""
        if self.later is None:
            function()
        else:
            self.later.append(function)

    @property
    def metadata(self) -> ClusterState:
        """The controller's state; what the broker serves is `cache`."""
        return self.loop.state

    def show(self, *changes: Change) -> None:
        """Puts changes into the controller's state without a write, and all of it into what the broker serves."""
        state = self.metadata
        state.apply(changes)
        topics, brokers = list(state.topics()), list(state.brokers.values())
        self.cache.update(
            UpdateMetadata(controller_id=0, controller_epoch=1, broker_epoch=1, topics=topics, brokers=brokers, is_complete=True)
        )

    def create(self, *topics: NewTopic | str, validate_only: bool = False) -> list[TopicResult]:
        answers: list[list[TopicResult]] = []
        wanted = [NewTopic(name=topic) if isinstance(topic, str) else topic for topic in topics]
        self.loop.create_topics(wanted, validate_only, answers.append)
        return answers[0]

    def delete(self, *names: str) -> list[TopicResult]:
        answers: list[list[TopicResult]] = []
        self.loop.delete_topics(names, answers.append)
        return answers[0]


def state_of(*brokers: int, racks: dict[int, str] | None = None, epoch: int = 7) -> ClusterState:
    """A state with live brokers and nothing else; every broker's epoch is its number plus 100."""
    state = ClusterState("cluster")
    state.controller_epoch, state.controller_epoch_version = epoch, epoch
    state.apply([BrokerPut(BrokerMetadata(broker_id=b, endpoints={}, rack=(racks or {}).get(b), epoch=100 + b)) for b in brokers])
    return state
