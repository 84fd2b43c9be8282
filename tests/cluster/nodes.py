"""Several production nodes in one process: real logs on disks in memory, a simulated network, one model of ZooKeeper, manual time.

Registration, election, the controller, its messages and replication are the production code; all messages between brokers go over the
simulated network.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ottla.base.broker_ports import Ages, Ports
from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.controller.api import NewTopic, TopicResult
from ottla.replication.appended import AppendResult
from ottla.replication.partition import Partition
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.node import Node
from ottla.wire.records import Record, encode_batch
from ottla.wire.schema import Request
from tests.fakes.disk import MemDisk
from tests.fakes.memory_store import MemoryStore
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers
from tests.fakes.world import World
from tests.sim.broker import store_model
from tests.sim.machine import LifeThreads, LifeTimers
from tests.sim.network import Call, Host, SimNetwork, Wire

LISTENER, PORT = "PLAINTEXT", 9092
DIRECTORY = "/data"


def host_of(broker_id: int) -> str:
    return f"broker-{broker_id}"


class ClusterNode(Node):
    """One broker."""

    def __init__(self, world: Nodes, ports: Ports, *assignments: str, broker_id: int) -> None:
        self.world = world
        # If a broker loses its power, the other ends of its connections close them after the time-out of a request.
        basis = (
            f"broker.id={broker_id}",
            f"listeners={LISTENER}://{host_of(broker_id)}:{PORT}",
            f"log.dirs={','.join(world.directories)}",
            "request.timeout.ms=2000",
            "zookeeper.connect=model:2181",
        )
        config = load(assignments=(*basis, *assignments))[0]
        directories = [LogDirectoryState(ports.disk, path, boot_id=world.boot_id(broker_id)) for path in world.directories]
        super().__init__(ports, config, directories, on_broken_invariant=fail)


def fail(error: AssertionError) -> None:
    raise error


class HostsNetwork(SimNetwork):
    """A network whose hosts go on when their processes end, so that a host can close the connections of its process."""

    def __init__(self, chance: random.Random, timers: ManualTimers) -> None:
        super().__init__(chance, timers)
        self._wires: list[tuple[LifeTimers | None, Wire]] = []

    def join(self, host: str, peer_host: str, life: LifeTimers | None) -> Wire | None:
        near = super().join(host, peer_host, life)
        if near is not None:
            self._wires += [(life, near.peer), (self.listening[host][0], near)]
        return near

    def end_of_process(self, life: LifeTimers) -> None:
        """Closes the other ends of the connections of a process."""
        for owner, other_end in self._wires:
            if owner is life:
                self.timers.call_later(self.delay_ms(), other_end.end)


class Nodes(World):
    """The cluster."""

    def __init__(
        self, count: int, *assignments: str, knows_boots: bool = False, directories: Sequence[str] = (DIRECTORY,)
    ) -> None:  # fmt: skip
        """With `knows_boots`, a broker knows whether its computer has been running since the last process ended. `directories` are the
        `log.dirs` of each broker."""
        self.chance = random.Random(7)
        self.network = HostsNetwork(self.chance, self.timers)
        self.network.is_kind = True
        self.model = store_model()
        self.assignments = assignments
        self.directories = directories
        self.disks: dict[int, MemDisk] = {}
        self.lives: dict[int, LifeTimers] = {}
        self.nodes: dict[int, ClusterNode] = {}
        self.refusals: list[str] = []
        self.starts = 0
        self._knows_boots = knows_boots
        self._boots: dict[int, int] = {}
        for broker_id in range(1, count + 1):
            self.disks[broker_id] = MemDisk(*self.directories)
            self.start(broker_id)

    # Life

    def start(self, broker_id: int, *, is_awaited: bool = True) -> ClusterNode:
        """Starts a broker. With `is_awaited`, waits until the broker is ready."""
        life = self.lives[broker_id] = LifeTimers(self.timers)
        self.starts += 1
        ports = Ports(
            clock=self.clock,
            timers=life,
            ages=Ages(self.clock, life),
            random=SeededRandom(self.starts),
            disk=self.disks[broker_id],
            threads=LifeThreads(life, self.chance),
            network=Host(self.network, host_of(broker_id), life),
            store=MemoryStore(model=self.model),
        )
        node = self.nodes[broker_id] = ClusterNode(self, ports, *self.assignments, broker_id=broker_id)
        ready: list[ClusterNode] = []
        node.start(lambda: ready.append(node), self.refusals.append)
        node.begin_turns()
        if is_awaited:
            self.until(lambda: ready or self.refusals)
        return node

    def boot_id(self, broker_id: int) -> str:
        return f"boot {self._boots.get(broker_id, 0)}" if self._knows_boots else ""

    def kill(self, broker_id: int, *, keeps_some: bool = True) -> None:
        """Cuts the power of a broker: some or all bytes that were not synced are lost, and its connections and its session end."""
        node = self.nodes.pop(broker_id)
        self._boots[broker_id] = self._boots.get(broker_id, 0) + 1
        self.lives.pop(broker_id).is_over = True
        self.network.listening.pop(host_of(broker_id), None)
        self.disks[broker_id].crash(SeededRandom(broker_id) if keeps_some else None)
        store = node.ports.store
        assert isinstance(store, MemoryStore)
        store.expire()

    def replace_disk(self, broker_id: int) -> None:
        """Gives an empty disk to a broker that is not running."""
        self.disks[broker_id] = MemDisk(*self.directories)

    def kill_process(self, broker_id: int) -> MemoryStore:
        """Ends only the process (kill -9): the host closes its connections and refuses new ones, and its session goes on until it
        expires."""
        node = self.nodes.pop(broker_id)
        life = self.lives.pop(broker_id)
        life.is_over = True
        self.network.listening.pop(host_of(broker_id), None)
        self.network.end_of_process(life)
        store = node.ports.store
        assert isinstance(store, MemoryStore)
        self.model.tree.take_watches(store.session_id())
        return store

    def settle(self, ms: int = 1_000) -> None:
        self.timers.advance(ms)

    # Clients

    def send(self, broker_id: int, body: Request, version: int | None = None) -> list[Any]:
        """Sends a client's request. Returns a list that gets the answer when it comes."""
        answers: list[Any] = []
        call = Call(None, type(body).VERSIONS[1] if version is None else version, lambda: body, TopicPartition("", 0))
        self.network.send(call, host_of(broker_id), answers.append)
        return answers

    def ask(self, broker_id: int, body: Request, version: int | None = None) -> Any:
        answers = self.send(broker_id, body, version)
        self.until(lambda: answers)
        return answers[0]

    @property
    def controller_id(self) -> int:
        (active,) = (broker_id for broker_id, node in self.nodes.items() if node.controller.is_active)
        return active

    # Topics

    def create(self, name: str, replicas: Sequence[int], *, partitions: int = 1, **configs: str) -> None:
        answers: list[TopicResult] = []
        controller = next(node.controller for node in self.nodes.values() if node.controller.is_active)
        topic = NewTopic(
            name=name,
            assignments={index: list(replicas) for index in range(partitions)},
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        controller.create_topics([topic], False, answers.extend)
        self.until(lambda: answers)
        assert answers[0].error is ErrorCode.NONE, answers

    def replica(self, broker_id: int, topic: str = "t", index: int = 0) -> Partition:
        found = self.nodes[broker_id].partitions.get(topic, index)
        assert found is not None, f"broker {broker_id} has no replica of {TopicPartition(topic, index)}"
        return found

    def leader(self, topic: str = "t", index: int = 0) -> Partition:
        found = [node.partitions.get(topic, index) for node in self.nodes.values()]
        return max((one for one in found if one is not None and one.is_leading), key=lambda one: one.leader_epoch)

    def write(self, *values: str, topic: str = "t", index: int = 0) -> AppendResult:
        records = [Record(0, self.clock.wall_ms(), None, value.encode()) for value in values]
        return self.leader(topic, index).require_leading().append(encode_batch(records), acks=1, now_ms=self.clock.wall_ms())


def content(partition: Partition) -> bytes:
    """Returns the bytes of the whole log."""
    found = partition.log.read(partition.log.log_start_offset, 1 << 30, end_offset=partition.log.log_end_offset)
    return b"" if found is None else found.read()
