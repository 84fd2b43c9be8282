"""Injects faults into a cluster: from time to time a random fault hits a random subset of its brokers, possibly none. If records are
acknowledged before they are synced, only one machine at a time may lose its power or its disk, and the next one only after every replica is
in sync again, because a cluster does not promise to survive more. There is no such limit for killed processes, pauses, network partitions
and expired sessions.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.cluster_broker import ClusterBroker, host_of
from tests.sim.cluster_lateness import depose
from tests.sim.cluster_network import CALM, STORM
from tests.sim.network import CLIENT_HOST

if TYPE_CHECKING:
    from tests.sim.cluster_world import ClusterWorld

ROUND_MS = (200, 1_400)
PAUSE_MS = (50, 3_500)
CUT_MS = (100, 3_500)
STORM_MS = (300, 2_000)
DISK_MS = (200, 1_500)
HICCUP_MS, HICCUP_LOOKS = 25, 6
"""So often, and so many times, a broker looks whether its disk works again that has failed once."""
UNREPORTED, UNREPORTED_MS = 0.7, (50, 1_000)
RECHECKED_MS = (0, 300)
FUSE_MAX = 40
USURPED_MS = (20, 150)
REJOINED_MS = (250, 700)
PATIENT_MS = 2_500
WITHIN = 0.4
CLOCK_JUMPS_MS = (-3_600_000, -30_000, 30_000, 3_600_000)


def has_failed(broker: ClusterBroker) -> bool:
    """Whether the disk of this broker has failed since its start. After a power failure such a broker cannot prove that its logs are whole,
    even if acknowledgements wait for the disk."""
    return broker.node is not None and any(directory.has_failed for directory in broker.node.directories)


class Nemesis:
    """Chooses and executes the faults of one world."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.chance: random.Random = world.chance
        self.counts: dict[str, int] = {}
        self.is_resting = False
        """Nothing new is broken meanwhile."""
        self._cut_off: dict[int, int] = {}
        self._lossy: set[int] = set()
        """Brokers that may have lost records, or cannot prove that they have not, since every replica was last in sync."""
        self._lying: int | None = None
        self._failing: dict[int, None] = {}
        self._kinds: list[tuple[int, str, Callable[[ClusterBroker], None]]] = [
            (3, "kill", self._kill),
            (3, "power", self._cut_power),
            (2, "pause", self._pause),
            (2, "isolate", self._isolate),
            (3, "link", self._cut_link),
            (3, "store", self._cut_store),
            (1, "expire", lambda broker: broker.store.expire_now() if broker.is_up and not broker.is_paused else None),
            (2, "unknown", lambda broker: broker.store.lose_an_answer() if broker.is_up else None),
            (2, "stop", lambda broker: broker.stop()),
            (1, "clock", lambda broker: broker.clock.jump_wall(self.chance.choice(CLOCK_JUMPS_MS))),
            (1, "disk", self._fail_disk),
            (3, "depose", lambda _broker: depose(self.world)),
            (2, "usurp", lambda _broker: self._usurp()),
        ]
        self._weights = [world.swarm.weighted(name, weight) for weight, name, _ in self._kinds]

    def start(self) -> None:
        self.world.later(*ROUND_MS, self._round)

    def _round(self) -> None:
        world = self.world
        if world.is_ending:
            return
        world.later(*ROUND_MS, self._round)
        if self.is_resting:
            return
        if self.chance.random() < 0.15:
            world.network.weather = STORM
            world.later(*STORM_MS, lambda: setattr(world.network, "weather", CALM))
        numbers = sorted(world.brokers)
        size = self.chance.choice((0, 1, 1, 1, 2, len(numbers)) if self.chance.random() < 0.3 else (0, 1, 1))
        for number in self.chance.sample(numbers, min(size, len(numbers))):
            _, name, strike = self.chance.choices(self._kinds, self._weights)[0]
            self.counts[name] = self.counts.get(name, 0) + 1
            world.note(name, number)
            strike(world.brokers[number])

    # Processes and machines

    def _kill(self, broker: ClusterBroker) -> None:
        if not broker.is_up:
            return
        if self.chance.random() < WITHIN:
            broker.is_kill_fused = True
            broker.disk.fuse = self.chance.randint(1, FUSE_MAX)
        else:
            self.world.crashes += 1
            broker.kill()

    def _cut_power(self, broker: ClusterBroker) -> None:
        if not broker.is_up or not self._may_lose_power(broker):
            return
        if self.chance.random() < WITHIN:
            broker.is_kill_fused = False
            broker.disk.fuse = self.chance.randint(1, FUSE_MAX)
        else:
            self.world.crashes += 1
            broker.cut_power()

    def strike(self, broker: ClusterBroker, restart_ms: tuple[int, int]) -> None:
        """Cuts the power of this broker now, if that is allowed, and starts it again soon."""
        if broker.is_up and self._may_lose_power(broker):
            self.world.crashes += 1
            broker.cut_power(restart_ms=restart_ms)

    def may_wipe(self) -> bool:
        """Whether a disk may be lost. Synced records are lost too, so every ISR must be full, and no machine may be down or about to lose
        its power.
        """
        brokers, store = self.world.brokers.values(), self.world.checks.store
        if not all(other.is_ready and other.is_up and other.disk.fuse is None for other in brokers):
            return False
        return all(set(state.isr) == set(store.replicas[key]) for key, state in store.states.items())

    def wipe(self, broker: ClusterBroker) -> bool:
        """Replaces the disk of this broker by an empty one, if that is allowed."""
        if not self.may_wipe():
            return False
        broker.cut_power()
        self.note_replaced(broker)
        return True

    def note_replaced(self, broker: ClusterBroker) -> None:
        """Notes that this machine, which is down, will start with an empty disk."""
        self._lossy.add(broker.broker_id)
        self.world.crashes += 1
        broker.replace_disk()

    def may_lie(self, broker: ClusterBroker) -> bool:
        """Whether the disk of this broker may return wrong data from now on. That is allowed if no other disk does or has lost data, or if
        all replicas are complete again.
        """
        is_first = self._lossy <= {broker.broker_id} and self._lying in (None, broker.broker_id)
        if not is_first and not self.world.is_in_sync():
            return False
        if any(self._is_about_to_lose(other) for other in self.world.brokers.values()):
            return False
        self._lossy = {broker.broker_id}
        self._lying = self.world.checks.lying = broker.broker_id
        return True

    def _may_lose_power(self, broker: ClusterBroker) -> bool:
        """Whether the cluster promises to survive that the power of this machine is cut. If so, notes the loss. There is no loss if
        acknowledgements wait for the disk.
        """
        return (self.world.is_flushed and not has_failed(broker)) or self._may_lose(broker, is_flush_a_help=False)

    def _may_lose(self, broker: ClusterBroker, *, is_flush_a_help: bool = True) -> bool:
        """Whether this broker may lose its unsynced records. If so, notes the loss."""
        world = self.world
        if not self._lossy <= {broker.broker_id} and not (world.is_flushed and is_flush_a_help):
            if not world.is_in_sync() or any(self._is_about_to_lose(other) for other in world.brokers.values()):
                return False
            self._lossy.clear()
        self._lossy.add(broker.broker_id)
        return True

    def _is_about_to_lose(self, broker: ClusterBroker) -> bool:
        """Whether the power or the disk of this broker is going to fail at one of its next writes."""
        return (broker.disk.fuse is not None and not broker.is_kill_fused) or broker.broker_id in self._failing

    def fuse_burnt(self, broker: ClusterBroker) -> None:
        """Called after the power failed or the process died in the middle of an event."""
        broker.life.is_over = broker.disk.is_without_power = False
        if broker.is_kill_fused:
            broker.kill()
        else:
            broker.cut_power()

    def _pause(self, broker: ClusterBroker) -> None:
        broker.pause()
        self.world.later(*PAUSE_MS, broker.resume)

    def _fail_disk(self, broker: ClusterBroker) -> None:
        """Makes the disk fail. It may be the only disk that has some records, so this is a loss like a loss of power."""
        if not broker.is_up or not self._may_lose(broker):
            return
        self._failing[broker.broker_id] = None
        kind = self.chance.choice(("full", "write", "sync"))
        if kind == "full":
            broker.disk.capacity_bytes = broker.disk.used_bytes + self.chance.randint(0, 500)
        else:
            broker.disk.fail_next(kind, errno.EIO, after=self.chance.randint(0, 20), count=self.chance.randint(1, 3))
        self.world.later(*DISK_MS, lambda: self._heal_disk(broker))

    def hiccup(self, broker: ClusterBroker, path_part: str) -> None:
        """Makes one write or sync of a log fail. The broker checks its disk before the controller reacts: its report is delayed, because
        the broker is not connected to the metadata store.
        """
        if not broker.is_up or broker.node is None or not self._may_lose(broker):
            return
        self._failing[broker.broker_id] = None
        broker.disk.fail_next(self.chance.choice(("write", "sync")), errno.EIO, path_part=path_part)
        if self.chance.random() < UNREPORTED:
            self.world.later(*UNREPORTED_MS, self._cut_from_store(broker))
        for number in range(1, HICCUP_LOOKS + 1):
            broker.life.call_later(HICCUP_MS * number, broker.node.housekeeping.recheck_offline)
        self.world.later(*DISK_MS, lambda: self._heal_disk(broker))

    def _heal_disk(self, broker: ClusterBroker) -> None:
        """Repairs the disk, and makes the broker check it soon, long before its usual interval has passed."""
        self._failing.pop(broker.broker_id, None)
        broker.disk.capacity_bytes = 1 << 40
        broker.disk.heal()
        if "hiccup" in self.world.swarm and broker.node is not None and not self.world.is_ending:
            node = broker.node
            broker.life.call_later(self.chance.randint(*RECHECKED_MS), node.housekeeping.recheck_offline)

    # Links

    def _isolate(self, broker: ClusterBroker) -> None:
        """Cuts the links to this broker, from this broker, or both."""
        others = [host_of(number) for number in self.world.brokers if number != broker.broker_id]
        if self.chance.random() < 0.3:
            others.append(CLIENT_HOST)
        self._cut([(broker.host, other) for other in others], [(other, broker.host) for other in others])

    def cut_off(self, broker: ClusterBroker, others: list[str], within_ms: tuple[int, int]) -> None:
        """Cuts the broker off from these hosts and from the metadata store, both ways and for the same time."""
        links = [link for other in others for link in ((broker.host, other), (other, broker.host))]
        for link in links:
            self.world.network.cut(*link)
        mend_store = self._cut_from_store(broker)

        def mend() -> None:
            self.world.network.mend(links)
            mend_store()

        self.world.later(*within_ms, mend)

    def cut_way(self, sender: int, receiver: int, within_ms: tuple[int, int]) -> None:
        """Cuts one direction between two brokers for a while."""
        links = [(host_of(sender), host_of(receiver))]
        self.world.network.cut(*links[0])
        self.world.later(*within_ms, lambda: self.world.network.mend(links))

    def _cut_link(self, broker: ClusterBroker) -> None:
        other = self.chance.choice([host_of(number) for number in self.world.brokers if number != broker.broker_id])
        self._cut([(broker.host, other)], [(other, broker.host)])

    def _cut(self, ways_out: list[tuple[str, str]], ways_in: list[tuple[str, str]]) -> None:
        links = self.chance.choice((ways_out, ways_in, [*ways_out, *ways_in]))
        for link in links:
            self.world.network.cut(*link)
        self.world.later(*CUT_MS, lambda: self.world.network.mend(links))

    def _usurp(self) -> None:
        """Makes a leader lose its session while its clients, but no other broker, can reach it. Soon it is connected again, and is elected
        again.
        """
        world, states = self.world, self.world.checks.store.states
        key = self.chance.choice(world.usurped_keys)
        leader, replicas = states[key].leader if key in states else -1, world.checks.store.replicas.get(key, ())
        if leader == -1 or leader != replicas[0] or not world.brokers[leader].is_ready:
            return
        broker = world.brokers[leader]
        others = [host_of(number) for number in world.brokers if number != leader]
        links = [link for other in others for link in ((broker.host, other), (other, broker.host))]
        for link in links:
            world.network.cut(*link)
        world.later(*USURPED_MS, lambda: broker.store.expire_now() if broker.is_up and not broker.is_paused else None)
        world.later(*REJOINED_MS, lambda: world.network.mend(links))
        for _ in range(3):
            world.later(REJOINED_MS[1], PATIENT_MS, lambda: world.operator.elect_leader_of(key))

    def _cut_store(self, broker: ClusterBroker) -> None:
        self.world.later(*CUT_MS, self._cut_from_store(broker))

    def _cut_from_store(self, broker: ClusterBroker) -> Callable[[], None]:
        """Cuts the broker off from the metadata store. Returns a function that repairs the link."""
        number = broker.broker_id
        self._cut_off[number] = turn = self._cut_off.get(number, 0) + 1
        if broker.is_up:
            broker.store.cut()
        return lambda: self._mend_store(broker, turn)

    def _mend_store(self, broker: ClusterBroker, turn: int) -> None:
        if self._cut_off.get(broker.broker_id) == turn:
            del self._cut_off[broker.broker_id]
            if broker.is_up:
                broker.store.mend()

    def is_cut_from_store(self, broker_id: int) -> bool:
        return broker_id in self._cut_off

    # The end

    def heal(self) -> None:
        """Repairs everything; brokers that are down start by themselves."""
        for broker in self.world.brokers.values():
            broker.disk.fuse = None
            self._heal_disk(broker)
            broker.resume()
            if self._cut_off.pop(broker.broker_id, None) is not None and broker.is_up:
                broker.store.mend()
        self.world.network.mend()
