"""Buffers for received bytes until their frame is whole, and the bound on all of them together.

Small frames are parsed in one buffer that all connections of the loop share: a connection only keeps a copy of an unfinished tail. A
frame larger than that buffer gets a buffer of its own, which never outgrows what was received by more than a factor, so a peer that
announces 100 MiB and sends nothing costs nothing. Buffers of ordinary large frames (a producer's 1 MiB batch) are pooled, because making
them costs as much as copying the batch.

All buffers of their own together stay below `bytes_max`: a frame that would have to grow beyond it is not read on until others have left.
A frame that is alone may always grow, so none is too large to come through. When every frame waits for another and nothing moves, `relieve`
drops the connection that holds the most.
"""

from __future__ import annotations

import logging
from typing import Protocol

log = logging.getLogger("ottla.network")

SHARED_BYTES = 1 << 16
POOLED_BYTES = (1 << 20) + (1 << 16)
POOLED_BUFFERS_MAX = 8
POOL_FROM_RECEIVED_BYTES = 1 << 14
"""A peer must have sent this much of a large frame before a whole pooled buffer is lent to it."""
UNBOUNDED = (1 << 63) - 1
STILL_TICKS_MAX = 10
"""Calls of `relieve` in which nothing was given back before a frame is dropped."""


class Reader(Protocol):
    """The channel that a frame is received from."""

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class ReceiveBuffers:
    """The shared buffer, the pool and the bound; one for all connections of a loop."""

    def __init__(self, bytes_max: int = UNBOUNDED) -> None:
        self.bytes_max = bytes_max
        self.bytes_lent = 0
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self._free: list[bytearray] = []
        self._waiting: dict[LargeFrame, Reader] = {}
        self._still_ticks = 0

    def size_for(self, size: int, received: int) -> int:
        """The buffer size for a frame of `size` bytes of which `received` have arrived."""
        if received >= POOL_FROM_RECEIVED_BYTES and size <= POOLED_BYTES:
            return POOLED_BYTES
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

    def wait(self, frame: LargeFrame, reader: Reader) -> None:
        """The frame must grow and may not yet: its reader resumes when there is room."""
        self._waiting[frame] = reader

    def stop_waiting(self, frame: LargeFrame) -> None:
        self._waiting.pop(frame, None)

    def relieve(self) -> None:
        """Drops a frame if all frames wait for each other; called periodically."""
        self._still_ticks = self._still_ticks + 1 if self._waiting else 0
        if self._still_ticks > STILL_TICKS_MAX:
            largest = max(self._waiting, key=lambda frame: frame.filled)
            log.warning("%d bytes of unfinished requests wait for each other; the largest is dropped", self.bytes_lent)
            self._waiting.pop(largest).close()

    def _wake(self) -> None:
        """First come, first served; each grows here, so that the next one sees what is left."""
        for frame, reader in list(self._waiting.items()):
            if not frame.make_room():
                break
            del self._waiting[frame]
            reader.resume_reading()


class LargeFrame:
    """A frame that is being received into a buffer of its own."""

    __slots__ = ("_buffers", "buffer", "filled", "size", "view")

    def __init__(self, buffers: ReceiveBuffers, size: int, start: memoryview) -> None:
        self._buffers = buffers
        self.size = size
        self.filled = len(start)
        wanted = buffers.size_for(size, self.filled)
        is_tight = buffers.bytes_lent + wanted > buffers.bytes_max
        self.buffer = buffers.lend(min(wanted, max(self.filled, POOL_FROM_RECEIVED_BYTES)) if is_tight else wanted)
        self.view = memoryview(self.buffer)
        self.view[: self.filled] = start

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
        self._buffers.give_back(self.buffer)

    def _grow(self) -> None:
        old, filled = len(self.buffer), self.view[: self.filled]
        self.buffer = self._buffers.lend(self._buffers.size_for(self.size, self.filled))
        self.view = memoryview(self.buffer)
        self.view[: self.filled] = filled
        self._buffers.bytes_lent -= old
