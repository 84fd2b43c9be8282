"""The received bytes of one connection that are not executed yet: the start of a frame, or whole requests that wait.

Small frames are executed in a buffer that all connections share. Only the bytes that are left in the shared buffer after a batch are copied
here (`tail`). A frame that is larger than the shared buffer has its own buffer (`large`). Both are charged to the memory for received
bytes. When that memory is full, connections with such bytes are closed (`memory/unfinished_requests.py`).
"""

from __future__ import annotations

from collections.abc import Sized
from struct import Struct

from ottla.base.ports import Channel
from ottla.server.memory.receive_buffer import SHARED_BYTES, LargeFrame, ReceiveBuffers

read_size = Struct(">i").unpack_from


class Inbox:
    """The received bytes of one connection (`memory.unfinished_requests.Unfinished`)."""

    missing_bytes = SHARED_BYTES
    """Upper bound for all small frames."""

    def __init__(self, buffers: ReceiveBuffers, channel: Channel, contexts: Sized) -> None:
        """`contexts`: the request contexts of the connection, which are empty until its first request is executed (`is_served`)."""
        self._buffers = buffers
        self.channel = channel
        self._contexts = contexts
        self.tail = b""
        self.large: LargeFrame | None = None
        self.begun_tick = 0
        """The tick at which `tail` began."""
        self.moved = 0
        self.waits_for_broker = False

    def buffer(self) -> memoryview:
        """Returns the buffer for the next received bytes. If there is no memory for these bytes, reading is paused and the buffer is empty.
        """
        if self.large is not None:
            return self.large.free_space()
        tail = self.tail
        if not tail:
            return self._buffers.shared_view
        self._buffers.shared[: len(tail)] = tail
        return self._buffers.shared_view[len(tail) :]

    def keep(self, rest: memoryview | bytes, *, waits_for_broker: bool) -> None:
        """Copies bytes that are not executed yet. `waits_for_broker`: they are requests that the broker does not execute for now."""
        self.waits_for_broker = waits_for_broker
        self.tail = bytes(rest)
        self._buffers.bytes_lent += len(rest)
        self._buffers.unfinished.note_begun(self)

    def keep_start(self, start: memoryview) -> bool:
        """Keeps the start of a frame until the rest is received. Returns whether the memory for received bytes is full."""
        size = read_size(start)[0] if len(start) >= 4 else 0
        if size + 4 > SHARED_BYTES:
            self.large = LargeFrame(self._buffers, size, start[4:], self.channel, is_served=self.is_served)
        else:
            self.keep(start, waits_for_broker=False)
        return self._buffers.is_full()

    def evict_for(self) -> bool:
        """Closes connections with unfinished requests to free memory for the frame that has begun here. Returns False if memory is still
        full.
        """
        return self._buffers.evict_for(self.large or self)

    def set_waiting(self, waits_for_broker: bool) -> None:
        """Notes whether the received bytes wait for the broker, which has paused reading."""
        self.waits_for_broker = waits_for_broker
        if self.large is not None:
            self.large.waits_for_broker = waits_for_broker

    def take(self) -> bytes:
        """Removes and returns the copied bytes."""
        tail, self.tail = self.tail, b""
        self._buffers.bytes_lent -= len(tail)
        return tail

    def drop_large(self) -> None:
        """Gives back the buffer of the large frame, if there is one."""
        large, self.large = self.large, None
        if large is not None:
            large.release()

    def drop_executed(self) -> None:
        """Gives back the buffer of a large frame that has been executed. A frame that is being received is kept."""
        if self.large is not None and self.large.is_whole():
            self.drop_large()

    def close(self) -> None:
        self.take()
        self.drop_large()

    @property
    def is_empty(self) -> bool:
        return not self.tail and self.large is None

    @property
    def received_bytes(self) -> int:
        return len(self.tail)

    lent_bytes = received_bytes

    @property
    def is_served(self) -> bool:
        """Whether a request of the connection has been executed."""
        return bool(self._contexts)
