"""Buffers for received bytes until their frame is whole, and the bound on all of them together.

Small frames are parsed in one buffer that all connections of the loop share: a connection only keeps a copy of an unfinished tail. A
frame larger than that buffer gets a buffer of its own, which never outgrows what was received by more than a factor, so a peer that
announces 100 MiB and sends nothing costs nothing. Buffers of ordinary large frames (a producer's 1 MiB batch) are pooled, because making
them costs as much as copying the batch.

All buffers of their own together stay below `bytes_max`: a frame that would have to grow beyond it is not read on until others have left.
A frame that is alone may always grow, so none is too large to come through. When one has to wait, the frames that came the slowest for
their age are dropped, so a crowd of peers that begin requests and never finish them starves none. When every frame waits for another and
nothing moves, `relieve` drops the connection that holds the most. Small unfinished frames, which their connections keep, and requests that
connections hold back count like large ones and are dropped like them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

log = logging.getLogger("ottla.network")

SHARED_BYTES = 1 << 16
POOLED_BYTES = (1 << 20) + (1 << 16)
POOLED_BUFFERS_MAX = 8
POOL_FROM_RECEIVED_BYTES = 1 << 14
"""A peer must have sent this much of a large frame before a whole pooled buffer is lent to it."""
UNBOUNDED = (1 << 63) - 1
RIPE_TICKS = 2
"""A frame may be dropped for its slowness when it is so many ticks old."""
CROWDED_PART = 1 / 4
"""Beyond this part of the bound a frame gets no pooled buffer while little of it is there: buffers grow with what was received."""
CROWDED_BYTES = POOLED_BUFFERS_MAX * POOLED_BYTES
"""The same beyond so many bytes, whatever the bound is: the pages of a new pooled buffer take the loop up to a millisecond, and hundreds of
connections may begin a frame in one turn."""
FULL_PART = 9 / 8
"""Beyond this part of the bound no further large frame is begun."""
STILL_TICKS_MAX = 10
"""Calls of `relieve` in which nothing was given back before a frame is dropped."""


class Reader(Protocol):
    """The channel that a frame is received from."""

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class Holder(Hashable, Protocol):
    """A connection, which may keep a piece of a small frame, or requests that are held back."""

    held_since_tick: int

    @property
    def held_bytes(self) -> int: ...

    @property
    def channel(self) -> Reader: ...


class ReceiveBuffers:
    """The shared buffer, the pool and the bound; one for all connections of a loop."""

    def __init__(self, bytes_max: int = UNBOUNDED) -> None:
        self.bytes_max = bytes_max
        self.bytes_lent = 0
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self._free: list[bytearray] = []
        self._waiting: dict[LargeFrame, Reader] = {}
        self._frames: dict[LargeFrame, Reader] = {}
        self._still_ticks = 0
        self.tick = 0
        self.holders: Callable[[], Iterable[Holder]] = tuple
        """Connections, which may hold bytes that are lent besides large frames."""
        self._noted: dict[LargeFrame | Holder, int] = {}
        self._noted_before: dict[LargeFrame | Holder, int] = {}
        """What was there of each at the last tick, and at the one before; only while memory is short."""

    def size_for(self, size: int, received: int) -> int:
        """The buffer size for a frame of `size` bytes of which `received` have arrived."""
        if received >= POOL_FROM_RECEIVED_BYTES and size <= POOLED_BYTES:
            return min(POOLED_BYTES, 4 * received) if self.is_crowded() and received < POOLED_BYTES // 4 else POOLED_BYTES
        return min(size, max(2 * received, POOL_FROM_RECEIVED_BYTES))

    def lend(self, size: int) -> bytearray:
        self.bytes_lent += size
        return self._free.pop() if size == POOLED_BYTES and self._free else bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        self.bytes_lent -= len(buffer)
        if len(buffer) == POOLED_BYTES and len(self._free) < POOLED_BUFFERS_MAX:
            self._free.append(buffer)
        self._still_ticks = 0
        if self._waiting:
            self._wake()

    def begin(self, frame: LargeFrame, reader: Reader) -> None:
        """A frame is being received from `reader`."""
        self._frames[frame] = reader
        if self.is_full():
            self._drop_slowest(is_done=lambda: not self.is_full())

    def end(self, frame: LargeFrame) -> None:
        self._frames.pop(frame, None)

    def is_crowded(self) -> bool:
        return self.bytes_lent > min(self.bytes_max * CROWDED_PART, CROWDED_BYTES)

    def is_full(self) -> bool:
        return self.bytes_lent > self.bytes_max * FULL_PART

    def wait(self, frame: LargeFrame, reader: Reader) -> None:
        """Lets a frame that must grow wait; its reader resumes when there is room."""
        self._waiting[frame] = reader
        self._drop_slowest(is_done=lambda: not self._waiting)

    def stop_waiting(self, frame: LargeFrame) -> None:
        self._waiting.pop(frame, None)

    def relieve(self) -> None:
        """Drops slow frames if others wait, and one if all wait for each other; called periodically."""
        self.tick += 1
        self._note_progress()
        self._wake()
        if self._waiting:
            self._drop_slowest(is_done=lambda: not self._waiting)
        elif self.bytes_lent > self.bytes_max:
            self._drop_slowest(is_done=lambda: self.bytes_lent <= self.bytes_max)
        self._still_ticks = self._still_ticks + 1 if self._waiting else 0
        if self._still_ticks > STILL_TICKS_MAX:
            largest = max(self._waiting, key=lambda frame: frame.filled)
            log.warning("%d bytes of unfinished requests wait for each other; the largest is dropped", self.bytes_lent)
            self._waiting.pop(largest).close()

    def _note_progress(self) -> None:
        self._noted_before, self._noted = self._noted, {}
        if self.bytes_lent > self.bytes_max * CROWDED_PART:
            self._noted.update((frame, frame.filled) for frame in self._frames)
            self._noted.update((holder, holder.held_bytes) for holder in self.holders() if holder.held_bytes)

    def _drop_slowest(self, *, is_done: Callable[[], bool]) -> None:
        """Drops frames that are not waiting, the slowest first, until it is done or the others are too young to judge. What came lately
        counts before what came for the age: a peer may send much at first, and a byte now and then."""
        ripe = sorted([*self._ripe_frames(), *self._ripe_pieces()], key=lambda found: found[0])
        dropped = 0
        for _, reader in ripe:
            if is_done():
                break
            dropped += 1
            reader.close()
            self._wake()
        if dropped:
            log.warning("%d unfinished requests that came the slowest are dropped, because others wait for memory", dropped)

    def _ripe_frames(self) -> Iterable[tuple[tuple[int, float], Reader]]:
        """Of each large frame that is old enough to be judged: bytes that came lately, and in each tick, and where from."""
        for frame, reader in self._frames.items():
            age = self.tick - frame.born_tick
            if age >= RIPE_TICKS and frame not in self._waiting:
                yield (frame.filled - self._noted_before.get(frame, 0), frame.filled / age), reader

    def _ripe_pieces(self) -> Iterable[tuple[tuple[int, float], Reader]]:
        """The same of each connection that holds a piece of a small frame, or requests."""
        for holder in self.holders():
            age = self.tick - holder.held_since_tick
            if (held := holder.held_bytes) and age >= RIPE_TICKS:
                yield (held - self._noted_before.get(holder, 0), held / age), holder.channel

    def _wake(self) -> None:
        """Resumes waiting readers in their order; each grows here, so that the next one gets what is left."""
        for frame, reader in list(self._waiting.items()):
            if not frame.make_room():
                break
            del self._waiting[frame]
            reader.resume_reading()


class LargeFrame:
    """A frame that is being received into a buffer of its own."""

    __slots__ = ("_buffers", "born_tick", "buffer", "filled", "size", "view")

    def __init__(self, buffers: ReceiveBuffers, size: int, start: memoryview, reader: Reader | None = None) -> None:
        self._buffers = buffers
        self.born_tick = buffers.tick
        self.size = size
        self.filled = len(start)
        wanted = buffers.size_for(size, self.filled)
        is_tight = buffers.bytes_lent + wanted > buffers.bytes_max or buffers.is_crowded()
        self.buffer = buffers.lend(min(wanted, max(self.filled, POOL_FROM_RECEIVED_BYTES)) if is_tight else wanted)
        self.view = memoryview(self.buffer)
        self.view[: self.filled] = start
        if reader is not None:
            buffers.begin(self, reader)

    def room(self) -> memoryview:
        """The room for the next bytes; the buffer grows by doubling up to the frame's size."""
        if self.filled == len(self.buffer):
            self._grow()
        return self.view[self.filled : self.size]

    def make_room(self) -> bool:
        """Whether there is room for more bytes, or could be made within the bound. A frame that is alone may always grow."""
        if self.filled == len(self.buffer):
            buffers, have = self._buffers, len(self.buffer)
            growth = buffers.size_for(self.size, self.filled) - have
            if buffers.bytes_lent + growth > buffers.bytes_max and buffers.bytes_lent > have:
                return False
            self._grow()
        return True

    def is_whole(self) -> bool:
        return self.filled >= self.size

    def frame(self) -> memoryview:
        return self.view[: self.size]

    def release(self) -> None:
        self._buffers.stop_waiting(self)
        self._buffers.end(self)
        self._buffers.give_back(self.buffer)

    def _grow(self) -> None:
        old, filled = len(self.buffer), self.view[: self.filled]
        self.buffer = self._buffers.lend(self._buffers.size_for(self.size, self.filled))
        self.view = memoryview(self.buffer)
        self.view[: self.filled] = filled
        self._buffers.bytes_lent -= old
