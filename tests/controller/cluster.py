"""A controller over a store in memory, with a listener that writes down what it is told: what most tests of this folder start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.cluster_metadata import BrokerMetadata, BrokerPut
from ottla.base.config import BrokerConfig
from ottla.controller.api import NewTopic, PartitionState, StoppedReplica, TopicResult
from ottla.controller.state import ClusterState
from ottla.server.controller_loop import ControllerLoop, Registration
from tests.fakes.clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.randomness import SeededRandom


class Told:
    """A `ClusterListener` that remembers."""

    def __init__(self) -> None:
        self.states: list[PartitionState] = []
        self.stopped: list[StoppedReplica] = []
        self.updated: list[str] = []
        self.removed: list[str] = []
        self.configs: list[tuple[int, str]] = []
        self.is_settled = True
        self.waiting: list[Callable[[], object]] = []

    def on_leader_and_isr(self, states: Sequence[PartitionState]) -> None:
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

    def __init__(self, store: MemoryStore | None = None, config: BrokerConfig | None = None, broker_id: int = 0) -> None:
        self.store = store if store is not None else MemoryStore()
        self.config = config if config is not None else BrokerConfig()
        self.told = Told()
        self.loop = ControllerLoop(store=self.store, config=self.config, clock=ManualClock(), random=SeededRandom(1), listener=self.told)
        self.registration = Registration(
            broker_id=broker_id, endpoints={"PLAINTEXT": ("127.0.0.1", 9092)}, protocols={"PLAINTEXT": "PLAINTEXT"}
        )
        self.is_started = False
        self.loop.start(self.registration, self._started)

    def _started(self) -> None:
        self.is_started = True

    @property
    def metadata(self) -> ClusterState:
        return self.loop.metadata

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
