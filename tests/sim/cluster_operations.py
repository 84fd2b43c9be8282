"""Operations and failures of a whole cluster, in addition to the faults of `cluster_nemesis.py`: a lost host, a rolling restart, moves of
coordinators, cancelled reassignments, disks that are replaced by empty ones, and the end of all brokers at once. A lost host is cut off
from everything at once, also from the metadata store. Its connections are silent, neither closed nor reset, for longer than its session
timeout. In a rolling restart the brokers are stopped cleanly one after the other, each after the previous one has started again. While
coordinators move, transactions are running, some of them with missing markers. A reassignment is cancelled soon after it has begun: its new
replicas are not in sync, or have just got in sync, or there is another controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.handlers.topics import alter_partition_reassignments
from ottla.transactions.states import PREPARED
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.sim.clients import OFFSETS, TRANSACTIONS
from tests.sim.cluster_broker import RESTART_MS, ClusterBroker
from tests.sim.cluster_clients import CONTROLLER, REPLICAS
from tests.sim.cluster_store import SESSION_MS
from tests.sim.network import CLIENT_HOST, Call

if TYPE_CHECKING:
    from tests.sim.cluster_world import ClusterWorld

EVERY = 6
"""The seeds that are multiples of it have worlds with such operations."""
LOST_AT_MS = (200, 1_500)
LOST_FOR_MS = (SESSION_MS + 500, 2 * SESSION_MS + 500)
ROLLING_AT_MS = (1_000, 3_000)
LOOK_MS = (20, 60)
MOVED_EVERY, MOVED_REST = 9, 7
"""The seeds with this rest have worlds in which coordinators move and reassignments are cancelled."""
MOVED_MS = (200, 1_200)
CANCELLED_MS = (0, 80)
DARK_EVERY, DARK_REST = 5, 3
"""The seeds with this rest have worlds in which all brokers end at once, now and then."""
DARK_MS = (800, 3_000)
DARK_LOOKS = 300
REPLACED_EVERY = 2
"""Of them, the seeds that are no multiples have worlds in which the power of all machines fails as well, and a disk with it."""
REPLACED_LAST_MS = (1_600, 2_600)
"""When the machine with the new disk starts where it is the last one to do so: so it alone is in sync, because all others came before."""
WIPED_MS = (20, 200)
"""So often it is looked whether every replica is in sync, so that a disk may be lost."""
BACK_MS = 4_000
"""For so long the next broker waits for the one before it, which may have been struck by something else meanwhile."""


class Operations:
    """See above."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.lost = self.restarted = self.moved = self.cancelled = self.wiped = self.darkened = self.replaced = 0

    @property
    def may_wipe(self) -> bool:
        """Whether coordinators move in this world, and disks are replaced by empty ones."""
        return self.world.is_operated and self.world.seed % MOVED_EVERY == MOVED_REST

    def start(self) -> None:
        if self.world.seed % EVERY == 0:
            self.world.later(*LOST_AT_MS, self._lose_host)
            self.world.later(*ROLLING_AT_MS, lambda: self._restart(sorted(self.world.brokers)))
        if self.may_wipe:
            self.world.later(*MOVED_MS, self._move)
            self.world.later(*WIPED_MS, self._wipe)
        if self.world.seed % DARK_EVERY == DARK_REST:
            self._darken_later()
            if self.world.seed % REPLACED_EVERY and not self.world.is_flushed:
                self.world.later(*DARK_MS, self._replace_in_the_dark)

    def _lose_host(self) -> None:
        world = self.world
        broker = world.brokers[world.chance.choice(sorted(world.brokers))]
        others = [CLIENT_HOST, *(other.host for other in world.brokers.values() if other is not broker)]
        world.note("lost", broker.broker_id)
        self.lost += 1
        world.nemesis.cut_off(broker, others, LOST_FOR_MS)

    def _restart(self, numbers: list[int]) -> None:
        """Restarts the first of these brokers, then the others."""
        if not numbers or self.world.is_ending:
            return
        broker = self.world.brokers[numbers[0]]
        lives = broker.lives
        self.world.note("rolls", broker.broker_id)
        broker.stop()
        self.restarted += broker.is_stopping
        self._await(broker, lives, numbers[1:], self.world.clock.monotonic_ms() + BACK_MS)

    def _await(self, broker: ClusterBroker, lives: int, rest: list[int], end_ms: int) -> None:
        is_back = broker.lives > lives and broker.is_ready
        if is_back or self.world.clock.monotonic_ms() >= end_ms:
            self._restart(rest)
        else:
            self.world.later(*LOOK_MS, lambda: self._await(broker, lives, rest, end_ms))

    def _move(self) -> None:
        """Moves a partition, in half of the cases a coordinator's partition, and cancels half of the moves."""
        world, chance = self.world, self.world.chance
        if world.is_ending:
            return
        world.later(*MOVED_MS, self._move)
        key = chance.choice([chance.choice((TRANSACTIONS, OFFSETS)), chance.choice(world.moved_keys)])
        numbers = sorted(world.brokers)
        target = chance.sample(numbers, min(REPLICAS, len(numbers)))
        self.reassign(key, target if len(numbers) > REPLICAS else target[: chance.choice((2, 3))])
        if chance.random() < 0.5:
            world.later(*CANCELLED_MS, lambda: self.reassign(key, None))

    def _darken_later(self) -> None:
        self.world.later(*DARK_MS, lambda: self._darken(DARK_LOOKS))

    def _darken(self, looks: int) -> None:
        """Ends all processes at the same moment, and starts each again after its own delay. If possible the moment is after a transaction
        was decided and before it has all its markers. If acknowledgements wait for the disk, in half of the cases the power fails instead.
        """
        world = self.world
        if world.is_ending:
            return
        if world.nemesis.is_resting:
            self._darken_later()
            return
        if looks and not self._is_deciding():
            world.later(1, 1, lambda: self._darken(looks - 1))
            return
        self._darken_later()
        is_power = world.is_flushed and world.chance.random() < 0.5
        world.note("dark", "power" if is_power else "processes")
        self.darkened += 1
        for broker in world.brokers.values():
            world.crashes += broker.is_up
            broker.cut_power() if is_power else broker.kill()

    def _replace_in_the_dark(self) -> None:
        """Cuts the power of all machines when everything is written to their disks, and starts a leader with an empty disk: no log is
        proved to be complete, and the other brokers have all records. In half of the cases this broker is the last one to start. Other
        faults wait until then.
        """
        world = self.world
        if world.is_ending:
            return
        world.nemesis.is_resting = not world.nemesis.may_wipe()
        if world.nemesis.is_resting:
            world.later(*WIPED_MS, self._replace_in_the_dark)
            return
        world.later(*DARK_MS, self._replace_in_the_dark)
        states = world.checks.store.states
        leader = next((states[key].leader for key in world.usurped_keys if key in states and states[key].leader >= 0), 1)
        is_last = world.chance.random() < 0.5
        world.note("replaced", leader, "last" if is_last else "any")
        self.replaced += 1
        for number, broker in world.brokers.items():
            broker.disk.write_back()
            broker.cut_power(restart_ms=REPLACED_LAST_MS if is_last and number == leader else RESTART_MS)
        world.crashes += len(world.brokers) - 1
        world.nemesis.note_replaced(world.brokers[leader])

    def _is_deciding(self) -> bool:
        nodes = [broker.node for broker in self.world.brokers.values() if broker.node is not None]
        hosts = [host for node in nodes for host in node.transactions.all_hosts()]
        return any(metadata.state in PREPARED for host in hosts for metadata in host.machine.shard.transactions.values())

    def _wipe(self) -> None:
        """Restarts a broker under its id without any of its data (KIP-903)."""
        world = self.world
        if world.is_ending:
            return
        world.later(*WIPED_MS, self._wipe)
        broker = world.brokers[world.chance.choice(sorted(world.brokers))]
        if world.nemesis.wipe(broker):
            world.note("wiped", broker.broker_id)
            self.wiped += 1

    def reassign(self, key: TopicPartition, replicas: list[int] | None) -> None:
        partition = ReassignablePartition(partition_index=key.partition, replicas=replicas)
        body = AlterPartitionReassignmentsRequest(timeout_ms=500, topics=[ReassignableTopic(name=key.topic, partitions=[partition])])

        def answered(answer: Any) -> None:
            is_done = not answer.error_code and not answer.responses[0].partitions[0].error_code
            self.moved += is_done and replicas is not None
            self.cancelled += is_done and replicas is None

        self.world.send(Call(alter_partition_reassignments, 0, lambda: body, CONTROLLER), answered)
