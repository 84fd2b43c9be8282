"""What operators and machines do to a whole cluster: a host that is lost, and a rolling restart. It comes on top of the nemesis' faults.

A host that is lost is cut off from everything at once, the metadata store included: its connections are silent, neither closed nor reset,
and stay so for longer than its session lasts. In a rolling restart the brokers are stopped cleanly one after the other, each when the one
before it is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.cluster_broker import ClusterBroker
from tests.sim.cluster_store import SESSION_MS
from tests.sim.network import CLIENT_HOST

if TYPE_CHECKING:
    from tests.sim.cluster_world import ClusterWorld

EVERY = 6
"""The seeds that are multiples of it have worlds with such operations."""
LOST_AT_MS = (200, 1_500)
LOST_FOR_MS = (SESSION_MS + 500, 2 * SESSION_MS + 500)
ROLLING_AT_MS = (1_000, 3_000)
LOOK_MS = (20, 60)
BACK_MS = 4_000
"""For so long the next broker waits for the one before it, which may have been struck by something else meanwhile."""


class Operations:
    """See above."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.lost = self.restarted = 0

    def start(self) -> None:
        if self.world.seed % EVERY == 0:
            self.world.later(*LOST_AT_MS, self._lose_host)
            self.world.later(*ROLLING_AT_MS, lambda: self._restart(sorted(self.world.brokers)))

    def _lose_host(self) -> None:
        world = self.world
        broker = world.brokers[world.chance.choice(sorted(world.brokers))]
        others = [CLIENT_HOST, *(other.host for other in world.brokers.values() if other is not broker)]
        world.note("lost", broker.broker_id)
        self.lost += 1
        world.nemesis.cut_off(broker, others, LOST_FOR_MS)

    def _restart(self, numbers: list[int]) -> None:
        """The first of these brokers, then the others."""
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
