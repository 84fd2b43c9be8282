"""A controller over a metadata store in memory, and a listener that records the calls it gets. Most tests of this folder use both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ottla.base.broker_ports import Ages
from ottla.base.cluster_metadata import BrokerMetadata, BrokerPut, Change, PartitionMetadata, TopicMetadata, TopicPut
from ottla.base.config import BrokerConfig
from ottla.base.control_messages import ReplicaRole, StoppedReplica, UpdateMetadata
from ottla.cluster.member import ClusterMember
from ottla.cluster.metadata_cache import MetadataCache
from ottla.cluster.registration import Registration
from ottla.controller.api import IsrChangeRequest, NewTopic, TopicResult
from ottla.controller.plans import Plan
from ottla.controller.state import ClusterState
from tests.fakes.memory_store import MemoryStore
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers


class RecordingReplicas:
    """A `ReplicaListener` that records the calls it gets."""

    def __init__(self) -> None:
        self.states: list[ReplicaRole] = []
        self.stopped: list[StoppedReplica] = []
        self.updated: list[str] = []
        self.removed: list[str] = []
        self.configs: list[tuple[int, str]] = []
        self.expiries = 0
        self.assigned: list[list[tuple[bytes, int]]] = []
        self.is_settled = True
        self.waiting: list[Callable[[], object]] = []

    def on_assignment(self, assigned: Collection[tuple[bytes, int]]) -> None:
        self.assigned.append(sorted(assigned))

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

    def on_session_expired(self) -> None:
        self.expiries += 1

    def on_configs(self, resource_type: int, name: str) -> None:
        self.configs.append((resource_type, name))


class Cluster:
    """One broker, its controller and its metadata store."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        config: BrokerConfig | None = None,
        *,
        cluster_id: str = "test-cluster",
        timers: ManualTimers | None = None,
        is_clean: bool = False,
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
            ages=Ages(self.timers.clock, self.timers),
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
            is_clean=lambda: is_clean,
        )
        self.member.call_when_ready(self._started)
        self.member.start(registration, on_registered=lambda: None, refused=self.refusals.append)

    def _started(self) -> None:
        self.is_started = True

    def _call_later(self, function: Callable[[], object]) -> None:
        """Calls the function at once, unless the test collects such functions."""
        if self.later is None:
            function()
        else:
            self.later.append(function)

    @property
    def metadata(self) -> ClusterState:
        """Returns the controller's state. The metadata that the broker serves is in `cache`."""
        return self.loop.state

    def show(self, *changes: Change) -> None:
        """Applies changes to the controller's state without a write, and copies the whole state to the broker's cache."""
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


class Rules:
    """`TopicRules` that are the same for all topics."""

    def __init__(self, *, is_unclean_allowed: bool = False, in_sync_min: int = 1) -> None:
        self._is_unclean_allowed = is_unclean_allowed
        self._in_sync_min = in_sync_min

    def is_unclean_allowed(self, topic: TopicMetadata) -> bool:
        return self._is_unclean_allowed

    def in_sync_min(self, topic: TopicMetadata) -> int:
        return self._in_sync_min


TOPIC_ID = bytes(range(16))


def with_topic(state: ClusterState, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> ClusterState:
    """Adds topic `t`; each partition is (leader, replicas, isr), with leader epoch 5 and partition epoch 9."""
    made = tuple(
        PartitionMetadata(index=index, leader=leader, leader_epoch=5, replicas=replicas, isr=isr, partition_epoch=9, controller_epoch=1)
        for index, (leader, replicas, isr) in enumerate(partitions)
    )
    state.apply([TopicPut(TopicMetadata(name="t", topic_id=TOPIC_ID, partitions=made))])
    return state


def applied(state: ClusterState, plan: Plan) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Applies the plan and returns (leader, leader epoch, partition epoch, isr) of each partition."""
    state.apply(plan.changes)
    topic = state.topic("t")
    assert topic is not None
    return [(part.leader, part.leader_epoch, part.partition_epoch, part.isr) for part in topic.partitions]


def joined(broker_id: int, *, is_clean: bool = True, epoch: int | None = None) -> BrokerMetadata:
    """Returns a broker that has registered again."""
    return BrokerMetadata(broker_id=broker_id, endpoints={}, epoch=500 + broker_id if epoch is None else epoch, is_clean=is_clean)


def isr_change(
    isr: list[tuple[int, int]], *, leader_epoch: int = 5, partition_epoch: int = 9, topic_id: bytes = TOPIC_ID, partition: int = 0
) -> IsrChangeRequest:
    return IsrChangeRequest(topic_id=topic_id, partition=partition, leader_epoch=leader_epoch, partition_epoch=partition_epoch, isr=isr)


def state_of(*brokers: int, racks: dict[int, str] | None = None, epoch: int = 7) -> ClusterState:
    """Returns a state with live brokers and nothing else. Each broker's epoch is its number plus 100."""
    state = ClusterState("cluster")
    state.controller_epoch, state.controller_epoch_version = epoch, epoch
    state.apply([BrokerPut(BrokerMetadata(broker_id=b, endpoints={}, rack=(racks or {}).get(b), epoch=100 + b)) for b in brokers])
    return state
