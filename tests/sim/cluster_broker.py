"""One broker of a simulated cluster: the production node on its own simulated machine. Its process can be killed (written bytes are kept),
paused, stopped cleanly and started again, and the machine can lose its power (unsynced bytes are lost in part or completely). Registration,
election, controller, control messages and replication are production code.
"""

from __future__ import annotations

import random
from typing import Any

from ottla.base.broker_ports import Ages, Ports
from ottla.base.config import load
from ottla.base.errors import StorageError
from ottla.base.ports import AddressError
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.node import Node
from tests.fakes.randomness import SeededRandom
from tests.sim.cluster_machine import MachineClock, ProcessTimers
from tests.sim.cluster_network import ClusterHost
from tests.sim.cluster_store import ClusterStore
from tests.sim.machine import FusedDisk, LifeThreads

LISTENER, PORT = "PLAINTEXT", 9092
CLUSTER_ID = "simulated-cluster-id-0"
ASSIGNMENTS = (
    "log.dirs=/data",
    "zookeeper.connect=model:2181",
    f"ottla.cluster.id={CLUSTER_ID}",
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "unclean.leader.election.enable=false",
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
    "request.timeout.ms=600",
    "replica.lag.time.max.ms=800",
    "replica.fetch.wait.max.ms=200",
    "offsets.load.buffer.size=4096",
    "transaction.state.log.load.buffer.size=4096",
    "share.coordinator.load.buffer.size=4096",
    "log.cleaner.enable=false",
    "log.retention.ms=-1",
    "ottla.tick.interval.ms=1000",
)
RESTART_MS = (50, 1_500)
REFUSED_MS = (100, 400)
CHECKPOINT_MS = (100, 1_200)


def host_of(broker_id: int) -> str:
    return f"broker-{broker_id}"


class ClusterNode(Node):
    """The production node, with one listener for brokers and clients."""

    def __init__(self, broker: ClusterBroker, ports: Ports, directory: LogDirectoryState) -> None:
        self._broker = broker
        listener = f"listeners={LISTENER}://{host_of(broker.broker_id)}:{PORT}"
        config, notices = load(assignments=(f"broker.id={broker.broker_id}", listener, *ASSIGNMENTS, *broker.assignments))
        assert not notices, notices
        super().__init__(ports, config, [directory], on_broken_invariant=fail)


def fail(error: AssertionError) -> None:
    raise error


class ClusterBroker:
    """A broker whose process ends and is started again; disk, clock and host are kept."""

    def __init__(self, world: Any, broker_id: int, assignments: tuple[str, ...] = ()) -> None:
        self.world = world
        self.broker_id = broker_id
        self.assignments = assignments
        self._chance: random.Random = world.chance
        self.clock = MachineClock(
            world.clock, offset_ms=self._chance.randint(0, 1 << 40), error_ms=self._chance.choice((0, 0, -30_000, 30_000))
        )
        self.disk = self._new_disk()
        self.random = SeededRandom(world.seed * 16 + broker_id)
        self.life = ProcessTimers(world.timers, self.touch)
        self.life.is_over = True
        self.lives = 0
        self.boots = 1
        self.node: ClusterNode | None = None
        self.store: ClusterStore
        self.is_ready = False
        self.is_stopping = False
        self.is_kill_fused = False
        """Whether the disk's fuse ends the process alone, not the power of the machine."""
        self.refusals: list[str] = []

    @property
    def is_up(self) -> bool:
        return not self.life.is_over

    @property
    def is_paused(self) -> bool:
        return self.is_up and self.life.is_paused

    def touch(self) -> None:
        self.world.touched[self.broker_id] = None

    # Life

    def start(self) -> None:
        if self.is_up or self.world.is_over:
            return
        self.lives += 1
        self.is_ready = self.is_stopping = False
        self.world.network.dark.pop(self.host, None)
        life = self.life = ProcessTimers(self.world.timers, self.touch)
        self.disk.is_without_power = False
        self.store = ClusterStore(self.world, self.broker_id, self.clock, life)
        if self.world.is_cut_from_store(self.broker_id):
            self.store.cut()
        life.call_later(0, self._boot)

    def _boot(self) -> None:
        ports = Ports(
            clock=self.clock,
            timers=self.life,
            ages=Ages(self.clock, self.life),
            random=self.random,
            disk=self.disk,
            threads=LifeThreads(self.life, self._chance, self.world.swarm.learned_ms),
            network=ClusterHost(self.world.network, host_of(self.broker_id), self.life),
            store=self.store,
        )
        try:
            self.store.is_booting = True
            boot_id = f"boot {self.boots} of {self.broker_id}"
            directory = LogDirectoryState(self.disk, "/data", boot_id=boot_id, is_flush_on_ack=self.world.is_flushed)
            node = self.node = ClusterNode(self, ports, directory)
            self.store.is_booting = False
            self.world.prepare(self, node)
            node.start(self._ready, self._refused)
            node.begin_turns()
        except (StorageError, AddressError) as error:
            self._refused(str(error))
            return
        self._checkpoint_later()

    def _ready(self) -> None:
        self.is_ready = True

    def _refused(self, reason: str) -> None:
        """Called if the process refuses to start with one line; starts it again later."""
        self.refusals.append(reason)
        self.world.note("refused", self.broker_id, reason)
        self.kill(restart_ms=REFUSED_MS)

    def kill(self, *, restart_ms: tuple[int, int] = RESTART_MS) -> None:
        """Kills the process; its written bytes are kept."""
        if self.is_up:
            self._end(is_silent=False)
            self.world.later(*restart_ms, self.start)

    def cut_power(self, *, restart_ms: tuple[int, int] = RESTART_MS) -> None:
        """Cuts the power of the machine; unsynced bytes are lost."""
        if self.is_up:
            self._end(is_silent=True)
            self.boots += 1
            self.world.network.dark[self.host] = None
            self.disk.crash(self.random)
            self.world.later(*restart_ms, self.start)

    def replace_disk(self) -> None:
        """Starts the machine, which is down, with an empty disk."""
        assert not self.is_up
        self.disk = self._new_disk()

    def _new_disk(self) -> FusedDisk:
        disk = FusedDisk(self, "/data")
        disk.on_change = lambda _operation, _path: disk.burn()
        return disk

    def _end(self, *, is_silent: bool) -> None:
        self.world.checks.note_end(self)
        self.life.is_over = True
        self.life.is_paused = False
        self.node = None
        self.disk.fuse = None
        self.disk.is_without_power = False
        self.store.fall_silent()
        self.world.network.process_died(self.life, is_silent=is_silent)

    def pause(self) -> None:
        if self.is_up and not self.life.is_paused:
            self.life.pause()
            self.store.fall_silent()

    def resume(self) -> None:
        if self.is_paused:
            self.life.resume()
            self.store.wake()

    def stop(self, *, restart_ms: tuple[int, int] = RESTART_MS) -> None:
        """Stops the broker cleanly, and starts it some time after it has ended."""
        life = self.life
        if not self.is_up or not self.is_ready or self.is_stopping or self.node is None:
            return
        self.is_stopping = True

        def stopped(_is_clean: bool) -> None:
            if self.life is life and self.is_up:
                self.store.close()
                self._end(is_silent=False)
                self.world.later(*restart_ms, self.start)

        node = self.node
        life.run(lambda: node.stop(stopped))

    def _checkpoint_later(self) -> None:
        self.life.call_later(self._chance.randint(*CHECKPOINT_MS), self._checkpoint)

    def _checkpoint(self) -> None:
        self._checkpoint_later()
        if self.node is not None and not self.is_stopping:
            self.node.housekeeping.write_checkpoints()

    # Read by the world

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        if self.node is None or not self.is_up:
            return {}
        return {partition.topic_partition: partition for partition in self.node.partitions.all()}

    @property
    def host(self) -> str:
        return host_of(self.broker_id)


