"""Makes rare delays frequent: changes of the ISR that reach the controller late, answers that are even later, and repeated messages.
Sometimes a leader's AlterPartition is delayed by some hundred milliseconds. Meanwhile the replica that is to join loses its power and
registers again (KIP-903), or the leader gets its last LeaderAndIsr again while its proposal is pending. The controller is also deposed by
deleting its node in the store, and learns of that late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.ports import Delete, SessionEvent
from ottla.controller.api import AlterPartitionDone, IsrChangeRequest
from ottla.metadata_store import znodes
from ottla.wire.messages.stop_replica import StopReplicaRequest
from tests.sim.cluster_broker import ClusterBroker, ClusterNode

if TYPE_CHECKING:
    from tests.sim.cluster_world import ClusterWorld

LATE = 0.25
LATE_MS = (40, 500)
STRUCK = 0.4
STRUCK_RESTART_MS = (5, 40)
REPEATED = 0.3
REPEATED_MS = (1, 40)
LATER_MS = (500, 4_000)
RETURNED, RETURNED_MS = 0.8, (100, 2_500)
"""How many orders to stop a replica come a second time where replicas are moved away and back, and how late."""
DEPOSED_MS = (20, 200)
UNCONNECTED = 0.6
AWAY_MS = (40, 200)
ASKED_TIMES = 3
ASKED_MS = (0, 15)


class LateIsrChanges:
    """Delays the AlterPartition requests of one broker to the controller, and their answers."""

    def __init__(self, world: ClusterWorld, broker: ClusterBroker, node: ClusterNode) -> None:
        self._world = world
        self._broker = broker
        self._life = broker.life
        self._node = node
        self._controller = node.links.isr_changes.controller
        self._last: Any = None
        control: Any = node.broker.control
        self._take = control.take
        node.links.isr_changes.controller = self
        control.take = self.take

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone) -> None:
        world = self._world

        def answered(code: Any, results: Any) -> None:
            def arrive() -> None:
                for result in results:
                    world.checks.note_answer(self._broker.broker_id, result.topic_id, result.partition)
                done(code, results)

            self._later(LATE, arrive)

        if not world.is_ending and world.chance.random() < LATE * STRUCK:
            self._strike(changes)
        if not world.is_ending and world.chance.random() < REPEATED:
            self._repeat(REPEATED_MS)
        self._later(LATE, lambda: self._controller.alter_partition(broker_id, broker_epoch, changes, answered))

    def take(self, request: Any, done: Callable[[Any], object]) -> None:
        """Passes on a request of a controller on another broker. Sometimes a copy of it arrives by another connection, soon or much later.
        """
        self._last = request
        is_stop = isinstance(request, StopReplicaRequest) and "return" in self._world.swarm
        if not self._world.is_ending and self._world.chance.random() < (RETURNED if is_stop else REPEATED / 3):
            self._repeat(RETURNED_MS if is_stop else LATER_MS)
        self._take(request, done)

    def _later(self, likely: float, function: Callable[[], object]) -> None:
        world = self._world
        if not world.is_ending and world.chance.random() < likely:
            self._life.call_later(world.chance.randint(*LATE_MS), function)
        else:
            function()

    def _strike(self, changes: Sequence[IsrChangeRequest]) -> None:
        """Cuts the power of a replica that is about to join, while the request is in flight."""
        for change in changes:
            partition = self._node.partitions.get_by_id(change.topic_id, change.partition)
            joining = [member for member, _ in change.isr if partition is not None and member not in partition.isr]
            if joining:
                self._world.nemesis.strike(self._world.brokers[joining[0]], STRUCK_RESTART_MS)
                return

    def _repeat(self, within_ms: tuple[int, int]) -> None:
        request = self._last
        if request is not None:
            self._life.call_later(self._world.chance.randint(*within_ms), lambda: self._take(request, lambda _code: None))


def depose(world: ClusterWorld) -> None:
    """Deletes `/controller`. The controller learns of it late, because the store answers it slowly for a while, or because it is not
    connected. It reconnects before its session expires, and requests reach it before it has read who the controller is.
    """
    deposed = [broker for broker in world.brokers.values() if broker.node is not None and broker.node.member.controller.is_active]
    if not deposed or not deposed[0].is_up:
        return
    broker, store = deposed[0], deposed[0].store
    if world.chance.random() < UNCONNECTED:
        store.cut(is_noticed=False)
        store.listen(lambda event: _ask_deposed(world, broker) if event is SessionEvent.CONNECTED else None)
        world.later(*AWAY_MS, store.mend)
    else:
        store.slow_down(world.chance.randint(*DEPOSED_MS))
        world.later(300, 1_500, lambda: store.slow_down(0))
    world.later(5, 60, lambda: world.model.session().multi([Delete(znodes.CONTROLLER)], lambda _outcome: None))


def _ask_deposed(world: ClusterWorld, broker: ClusterBroker) -> None:
    for _ in range(ASKED_TIMES if not world.is_ending else 0):
        world.later(*ASKED_MS, lambda: world.operator.create_at(broker))
