"""Damages disks: while a broker's process is down, some of the bytes that it wrote and synced are changed ("the disk lies"). At most one
replica of each partition is damaged at a time; the next disk is damaged only after every replica is in sync again. No acknowledged record
may be lost then, and all replicas must be complete at the end. Often all other processes are killed at the same time, and the damaged
broker is the first one to start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.base.errors import WireError
from ottla.base.types import TopicPartition
from ottla.storage.segment import LOG_SUFFIX
from ottla.wire.batch_header import BatchHeader, iter_batches
from tests.fakes.disk import Copied
from tests.sim.cluster_broker import ClusterBroker

if TYPE_CHECKING:
    from tests.sim.cluster_world import ClusterWorld

LIE_MS = (700, 2_200)
COPY_MS = (200, 1_500)
FIRST_BACK_MS = (5, 60)
OTHERS_BACK_MS = (80, 900)
DATA = "/data"
ALL_END = 0.4
HEAD_BYTES = 16
"""Base offset, length and leader epoch of a batch: no CRC covers them."""


class LyingDisks:
    """See above."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.counts: dict[str, int] = {}
        self._copies: dict[int, Copied] = {}
        self._kinds = {
            "cut": self._cut,
            "directory": self._lose_directory,
            "file": self._lose_file,
            "old partition": self._roll_back_partition,
            "old disk": self._roll_back,
            "flip": self._flip,
            "lost write": self._lose_write,
            "misdirected": self._misdirect,
        }

    def start(self, kinds: tuple[str, ...]) -> None:
        self._kinds = {name: lie for name, lie in self._kinds.items() if name in kinds}
        self.world.later(*COPY_MS, self._copy)
        self.world.later(*LIE_MS, self._lie)

    def _copy(self) -> None:
        """Copies the current contents of a disk, to be put back later."""
        world = self.world
        if world.is_ending:
            return
        world.later(*COPY_MS, self._copy)
        number = world.chance.choice(sorted(world.brokers))
        self._copies[number] = world.brokers[number].disk.copy_of(DATA)

    def _lie(self) -> None:
        world, chance = self.world, self.world.chance
        if world.is_ending:
            return
        world.later(*LIE_MS, self._lie)
        leaders = [state.leader for state in world.checks.store.states.values() if state.leader >= 0]
        number = chance.choice(leaders) if leaders and chance.random() < 0.7 else chance.choice(sorted(world.brokers))
        broker = world.brokers[number]
        if world.nemesis.is_resting or not broker.is_up or not world.nemesis.may_lie(broker):
            return
        name = chance.choice(sorted(self._kinds))
        is_all = chance.random() < ALL_END
        for other in world.brokers.values() if is_all else (broker,):
            world.crashes += other.is_up
            other.kill(restart_ms=FIRST_BACK_MS if other is broker else OTHERS_BACK_MS)
        what = self._kinds[name](broker)
        world.note("lies", number, name, what, "all" if is_all else "alone")
        self.counts[name] = self.counts.get(name, 0) + bool(what)

    # Kinds of damage: each returns a description of the damage, "" if there was nothing to damage

    def _logs(self, broker: ClusterBroker) -> list[TopicPartition]:
        return [key for key in self.world.keys if broker.disk.exists(f"{DATA}/{key}")]

    def _active(self, broker: ClusterBroker) -> str:
        """Returns the last segment of a log that has records; "" if there is none."""
        found = []
        for key in self._logs(broker):
            segments = [name for name in broker.disk.listdir(f"{DATA}/{key}") if name.endswith(LOG_SUFFIX)]
            if segments and any(whole_batches(broker.disk.read_file(path := f"{DATA}/{key}/{segments[-1]}"))):
                found.append(path)
        return self.world.chance.choice(found) if found else ""

    def _cut(self, broker: ClusterBroker) -> str:
        """Cuts the last segment after an earlier batch."""
        path = self._active(broker)
        if path:
            data = broker.disk.read_file(path)
            position = self.world.chance.choice([position for position, _ in whole_batches(data)])
            broker.disk.write_file(path, data[:position])
        return path

    def _lose_directory(self, broker: ClusterBroker) -> str:
        keys = self._logs(broker)
        if not keys:
            return ""
        path = f"{DATA}/{self.world.chance.choice(keys)}"
        broker.disk.lose(path)
        return path

    def _lose_file(self, broker: ClusterBroker) -> str:
        path = self._active(broker)
        if path:
            broker.disk.lose(path)
        return path

    def _roll_back_partition(self, broker: ClusterBroker) -> str:
        copy, keys = self._copies.get(broker.broker_id), self._logs(broker)
        if copy is None or not keys:
            return ""
        name = str(self.world.chance.choice(keys))
        return f"{DATA}/{name}" if broker.disk.put_back(f"{DATA}/{name}", copy.directory(name)) else ""

    def _roll_back(self, broker: ClusterBroker) -> str:
        return DATA if broker.disk.put_back(DATA, self._copies.get(broker.broker_id)) else ""

    def _segment(self, broker: ClusterBroker) -> str:
        """Returns a segment that has a batch; "" if there is none."""
        found = []
        for key in self._logs(broker):
            segments = [name for name in broker.disk.listdir(f"{DATA}/{key}") if name.endswith(LOG_SUFFIX)]
            paths = [f"{DATA}/{key}/{name}" for name in sorted(segments)]
            found += [path for path in paths if any(whole_batches(broker.disk.read_file(path)))]
        return self.world.chance.choice(found) if found else ""

    def _flip(self, broker: ClusterBroker) -> str:
        """Flips one bit of a batch."""
        path = self._segment(broker)
        if path:
            chance = self.world.chance
            position, header = chance.choice(list(whole_batches(broker.disk.read_file(path))))
            at = chance.randrange(chance.choice([HEAD_BYTES, header.size_bytes]))
            broker.disk.flip_bits(path, position + at, 1 << chance.randrange(8))
        return path

    def _lose_write(self, broker: ClusterBroker) -> str:
        """Replaces a batch by zeros, as if it was never written."""
        return self._overwrite(broker, bytes)

    def _misdirect(self, broker: ClusterBroker) -> str:
        """Overwrites a batch with bytes of another log. They begin within a batch: a whole batch with the expected offset would be valid
        here, too, because no CRC covers the log that a batch belongs to.
        """
        other = self._segment(broker)
        data = broker.disk.read_file(other)[1:] if other else b""
        return self._overwrite(broker, lambda size: (data * (size // len(data) + 1))[:size]) if data else ""

    def _overwrite(self, broker: ClusterBroker, content: Callable[[int], bytes]) -> str:
        path = self._segment(broker)
        if path:
            data = bytearray(broker.disk.read_file(path))
            position, header = self.world.chance.choice(list(whole_batches(data)))
            data[position : position + header.size_bytes] = content(header.size_bytes)
            broker.disk.write_file(path, bytes(data))
        return path


def whole_batches(data: bytes | bytearray) -> Iterator[tuple[int, BatchHeader]]:
    """Returns the batches before the first bytes that are not a batch; a failed append may leave such bytes."""
    with suppress(WireError):
        yield from iter_batches(data)
