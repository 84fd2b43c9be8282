"""Where received bytes lie until their frame is whole.

Small frames are parsed in one buffer that all connections of the loop share: a connection only keeps a copy of an unfinished tail. A
frame larger than that buffer gets a buffer of its own, which never outgrows what was received by more than a factor, so a peer that
announces 100 MiB and sends nothing costs nothing. Buffers of ordinary large frames (a producer's 1 MiB batch) are pooled, because making
them costs as much as copying the batch.
"""

from __future__ import annotations

SHARED_BYTES = 1 << 16
POOLED_BYTES = (1 << 20) + (1 << 16)
POOLED_BUFFERS_MAX = 8
POOL_FROM_RECEIVED_BYTES = 1 << 14
"""A peer must have sent this much of a large frame before a whole pooled buffer is lent to it."""


class ReceiveBuffers:
    """The shared buffer and the pool; one for all connections of a loop."""

    def __init__(self) -> None:
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self._free: list[bytearray] = []

    def lend(self, size: int, received: int) -> bytearray:
        """A buffer for a frame of `size` bytes of which `received` are there."""
        if received >= POOL_FROM_RECEIVED_BYTES and size <= POOLED_BYTES:
            return self._free.pop() if self._free else bytearray(POOLED_BYTES)
        return bytearray(min(size, max(2 * received, POOL_FROM_RECEIVED_BYTES)))

    def give_back(self, buffer: bytearray) -> None:
        if len(buffer) == POOLED_BYTES and len(self._free) < POOLED_BUFFERS_MAX:
            self._free.append(buffer)


class LargeFrame:
    """A frame that is being received into a buffer of its own."""

    __slots__ = ("_buffers", "buffer", "filled", "size", "view")

    def __init__(self, buffers: ReceiveBuffers, size: int, start: memoryview) -> None:
        self._buffers = buffers
        self.size = size
        self.filled = len(start)
        self.buffer = buffers.lend(size, self.filled)
        self.view = memoryview(self.buffer)
        self.view[: self.filled] = start

    def room(self) -> memoryview:
        """Where the next bytes go; the buffer grows by doubling up to the frame's size."""
        if self.filled == len(self.buffer):
            self._grow()
        return self.view[self.filled : self.size]

    def is_whole(self) -> bool:
        return self.filled >= self.size

    def frame(self) -> memoryview:
        return self.view[: self.size]

    def release(self) -> None:
        self._buffers.give_back(self.buffer)

    def _grow(self) -> None:
        old = self.view[: self.filled]
        self.buffer = self._buffers.lend(self.size, self.filled)
        self.view = memoryview(self.buffer)
        self.view[: self.filled] = old
