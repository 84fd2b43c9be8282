"""Buffers for received bytes until their frame is complete, and the limit on their memory.

Small frames are parsed in one buffer that all connections of the loop share: a connection only keeps a copy of an unfinished tail. A larger
frame gets its own buffer, which grows with the received bytes. It has 16 KiB at first, or twice the bytes that arrived with its start, so a
peer that announces 100 MiB and sends nothing costs little. Buffers of ordinary large frames (a producer's 1 MiB batch) are pooled, because
allocating one costs as much as copying the batch. A frame of this size gets a pooled buffer once 16 KiB of it have arrived.

The buffers of all large frames together stay below the limit `bytes_max`. There are three exceptions. A new frame always gets a first
buffer: 16 KiB, or the size of the bytes that have been read already, which are at most the 64 KiB of the shared buffer. The first waiting
frame may use the reserve (`RESERVE_PART`). If only one frame has a buffer, it may always grow. A frame with a full buffer grows when more
of it can be read. If it would exceed the limit, reading is paused until other frames have ended. The waiting frame with the fewest missing
bytes continues first; in this order, each tick of a frame's age is worth `AGE_BYTES` fewer missing bytes. This frame may use the reserve if
that completes it, so small requests are served while large ones wait for each other. A tick is one call of `relieve`, every
`ottla.tick.interval.ms`.

When a frame has to wait, or another begins while memory is full, `unfinished_requests.py` selects frames to drop. Dropping a frame closes
its connection. So peers that begin requests and never finish them do not stop other clients. When all frames wait for each other, `relieve`
drops some in each tick: at first only frames of connections that have not sent a whole request yet. Small unfinished frames, and requests
that connections hold back, are counted and dropped like large frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heappop, heappush

from ottla.server.memory.unfinished_requests import RIPE_TICKS, Reader, Unfinished, UnfinishedRequests

log = logging.getLogger("ottla.network")

SHARED_BYTES = 1 << 16
POOLED_BYTES = (1 << 20) + (1 << 16)
POOLED_BUFFERS_MAX = 8
POOL_FROM_RECEIVED_BYTES = 1 << 14
"""Number of bytes of a large frame that a peer must have sent before the frame gets a pooled buffer."""
UNBOUNDED = (1 << 63) - 1
CROWDED_PART = 1 / 4
"""Part of the limit. If more is in use, a frame gets a pooled buffer only after a quarter of one has been received; until then its buffer
grows with the received bytes."""
CROWDED_BYTES = POOLED_BUFFERS_MAX * POOLED_BYTES
"""The same threshold in bytes; the smaller one applies. Touching the pages of a new pooled buffer takes up to a millisecond, and hundreds
of connections may begin a frame in one iteration of the loop."""
FULL_PART = 9 / 8
"""Part of the limit. If more is in use, a request that begins causes others to be dropped."""
RESERVE_PART = 10 / 8
"""Part of the limit. The first waiting frame may grow until this much is in use."""
AGE_BYTES = 1 << 16
"""Number of missing bytes that a tick of age outweighs in the order of waiting frames."""
STALE_ENTRIES_MAX = 64
"""The heap of waiting frames is rebuilt when it has this many more stale entries than valid ones."""
STILL_TICKS_MAX = 10
"""If frames have waited for more ticks than this and no buffer was returned, frames of any connection are dropped."""
STILL_TICKS_UNSERVED_MAX = RIPE_TICKS
"""If frames have waited for more ticks than this and no buffer was returned, frames of connections that have not sent a whole request yet
are dropped. Clients send a small request, ApiVersions, first."""
KEPT_PART = 7 / 8
"""Part of the limit. When all frames wait, requests are dropped until no more than this is in use."""
DROPPED_MAX = 50
"""Connections that are dropped at once. 50: closing one takes 0.1 to 0.3 ms, and other connections wait meanwhile."""
RESUMED_MAX = 16
"""Frames that grow at once. 16: the pages of a buffer of 1 MiB take up to 1 ms, and other connections wait meanwhile."""


class ReceiveBuffers:
    """The shared buffer, the pool and the limit; one object for all connections of a loop."""

    def __init__(self, bytes_max: int = UNBOUNDED) -> None:
        self.bytes_max = bytes_max
        self.full_bytes, self._reserve_end = bytes_max * FULL_PART, bytes_max * RESERVE_PART
        self.bytes_lent = 0
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self.unfinished = UnfinishedRequests()
        self._free: list[bytearray] = []
        self._waiting: dict[int, LargeFrame] = {}
        self._order: list[tuple[int, int]] = []
        """A heap of (priority, number of the frame). The frame may have stopped waiting."""
        self._waits = 0
        self._is_dropping = False  # waiting frames do not get the returned memory
        self._still_ticks = 0

    def size_for(self, size: int, received: int) -> int:
        """Returns the buffer size for a frame of `size` bytes after `received` bytes have arrived."""
        if received >= POOL_FROM_RECEIVED_BYTES and size <= POOLED_BYTES:
            return min(size, 4 * received) if self.is_crowded() and received < POOLED_BYTES // 4 else POOLED_BYTES
        return min(size, max(2 * received, POOL_FROM_RECEIVED_BYTES))

    def lend(self, size: int) -> bytearray:
        self.bytes_lent += size
        return self._free.pop() if size == POOLED_BYTES and self._free else bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        self.bytes_lent -= len(buffer)
        if len(buffer) == POOLED_BYTES and len(self._free) < POOLED_BUFFERS_MAX:
            self._free.append(buffer)
        self._still_ticks = 0
        if self._waiting and not self._is_dropping:
            self._wake()

    def is_crowded(self) -> bool:
        return self.bytes_lent > min(self.bytes_max * CROWDED_PART, CROWDED_BYTES)

    def is_full(self) -> bool:
        return self.bytes_lent > self.full_bytes

    def evict_for(self, newcomer: Unfinished) -> bool:
        """Called when a request has begun. Drops other requests if memory is full. Returns False if memory is still full."""
        if self.bytes_lent > self.full_bytes:
            self._drop_slowest(is_done=lambda: self.bytes_lent <= self.full_bytes)
        if self.bytes_lent > self.full_bytes:
            self._drop_dispensable(newcomer)
        return self.bytes_lent <= self.full_bytes

    def wait(self, frame: LargeFrame) -> None:
        """Queues a frame that needs a larger buffer. Its connection reads again when there is memory. Drops the slowest requests until
        then."""
        self._waits += 1
        frame.waiting_number = self._waits
        self._waiting[frame.waiting_number] = frame
        heappush(self._order, (frame.missing_bytes + AGE_BYTES * frame.begun_tick, frame.waiting_number))
        self._wake()
        self._drop_slowest(is_done=lambda: not self._waiting)

    def stop_waiting(self, frame: LargeFrame) -> None:
        if self._waiting.pop(frame.waiting_number, None) is not None and len(self._order) > 2 * len(self._waiting) + STALE_ENTRIES_MAX:
            self._order = sorted(item for item in self._order if item[1] in self._waiting)

    def relieve(self) -> None:
        """Called every tick. Drops slow requests while frames wait or the limit is exceeded. Drops more if all frames wait for each
        other."""
        self.unfinished.next_tick(is_short=self.bytes_lent > self.bytes_max * CROWDED_PART)
        self._wake()
        if self._waiting:
            self._drop_slowest(is_done=lambda: not self._waiting)
        elif self.bytes_lent > self.bytes_max:
            self._drop_slowest(is_done=lambda: self.bytes_lent <= self.bytes_max)
        self._still_ticks = self._still_ticks + 1 if self._waiting else 0
        if self._still_ticks > STILL_TICKS_UNSERVED_MAX:
            self._end_standstill(has_waited=self._still_ticks > STILL_TICKS_MAX)

    def may_grow(self, frame: LargeFrame) -> bool:
        """Whether a frame may grow: no frame waits, and the total stays within the limit or no other frame has a buffer."""
        return not self._waiting and self._is_within(frame)

    def _may_grow_first(self, frame: LargeFrame) -> bool:
        """Whether the first waiting frame may grow. It may also use half of the free reserve, if that completes it."""
        lacks = frame.size - len(frame.buffer)
        return self._is_within(frame) or lacks <= (self._reserve_end - self.bytes_lent) / 2

    def _is_within(self, frame: LargeFrame) -> bool:
        have = len(frame.buffer)
        return self.bytes_lent <= have or self.bytes_lent + self.size_for(frame.size, frame.filled) - have <= self.bytes_max

    def _drop_slowest(self, *, is_done: Callable[[], bool]) -> None:
        """Drops the slowest requests, `DROPPED_MAX` at most, until `is_done()`. Frames that wait for memory are kept."""
        dropped = 0
        while not is_done() and dropped < DROPPED_MAX and (slowest := self.unfinished.next_slowest()) is not None:
            if isinstance(slowest, LargeFrame) and slowest.waiting_number in self._waiting:
                continue
            dropped += 1
            slowest.channel.close()
            self._wake()
        if dropped:
            log.warning("closed %d connections with the slowest unfinished requests, because other requests wait for memory", dropped)

    def _drop_dispensable(self, newcomer: Unfinished) -> None:
        """Drops at most `DROPPED_MAX` requests in the order of eviction, until no more than `bytes_max` is lent. This is below
        `full_bytes`, so that more than one request can begin."""
        dropped = self._drop(self.unfinished.dispensable(newcomer), self.bytes_max)
        if dropped:
            log.warning("closed %d connections with unfinished requests, because memory is full", dropped)

    def _end_standstill(self, *, has_waited: bool) -> None:
        """Called when all frames wait for each other. Drops unfinished requests of connections that have not sent a whole request yet; with
        `has_waited` also requests of other connections."""
        ticks = self._still_ticks
        found = self.unfinished.dispensable(None)
        dropped = self._drop([one for one in found if has_waited or not one.is_served], self.bytes_max * KEPT_PART)
        if dropped:
            log.warning("closed %d connections with unfinished requests, because all requests wait for memory", dropped)
            self._wake()
            self._still_ticks = ticks - 1  # the next tick drops more, unless a request has become whole

    def _drop(self, requests: list[Unfinished], bytes_kept: float) -> int:
        """Drops requests in the given order until no more than `bytes_kept` is lent: at least one request, and `DROPPED_MAX` at most.
        Returns the number of dropped requests."""
        dropped = 0
        self._is_dropping = True
        for one in requests[:DROPPED_MAX]:
            if dropped and self.bytes_lent <= bytes_kept:
                break
            dropped += 1
            one.channel.close()
        self._is_dropping = False
        return dropped

    def _wake(self) -> None:
        """Resumes up to `RESUMED_MAX` waiting frames in their order. Grows each frame before it checks whether the next one may grow."""
        resumed = 0
        while self._order and resumed < RESUMED_MAX:
            frame = self._waiting.get(self._order[0][1])
            if frame is not None:
                if not self._may_grow_first(frame):
                    break
                frame.grow()
                resumed += 1
                del self._waiting[frame.waiting_number]
                frame.channel.resume_reading()
            heappop(self._order)


class LargeFrame:
    """A frame that is being received into a buffer of its own."""

    __slots__ = (
        "_buffers", "buffer", "channel", "filled", "begun_tick", "is_served", "moved", "waiting_number", "waits_for_broker", "size", "view"
    )  # fmt: skip

    def __init__(self, buffers: ReceiveBuffers, size: int, start: memoryview, channel: Reader, *, is_served: bool) -> None:
        self._buffers, self.channel, self.is_served = buffers, channel, is_served
        self.begun_tick = self.moved = 0
        self.waits_for_broker = False
        buffers.unfinished.note_begun(self)
        self.waiting_number = 0  # running number of its last wait; 0 before the first one
        self.size = size
        self.filled = len(start)
        wanted = buffers.size_for(size, self.filled)
        is_tight = buffers.bytes_lent + wanted > buffers.bytes_max or buffers.is_crowded()
        self.buffer = buffers.lend(min(wanted, max(self.filled, POOL_FROM_RECEIVED_BYTES)) if is_tight else wanted)
        self.view = memoryview(self.buffer)
        self.view[: self.filled] = start
        buffers.unfinished.frames[self] = None

    @property
    def received_bytes(self) -> int:
        return self.filled

    @property
    def lent_bytes(self) -> int:
        return len(self.buffer)

    @property
    def missing_bytes(self) -> int:
        return self.size - self.filled

    def free_space(self) -> memoryview:
        """Returns free space for the next bytes. It is empty if there is no memory; then reading is paused until there is."""
        if self.filled == len(self.buffer):
            if self._buffers.may_grow(self):
                self.grow()
            else:
                self.channel.pause_reading()
                self._buffers.wait(self)
        return self.view[self.filled : self.size]

    def note_received(self, count: int) -> None:
        """Notes that `count` bytes have been received into `free_space`."""
        self.filled += count
        unfinished = self._buffers.unfinished
        self.moved = unfinished.moves = unfinished.moves + 1

    def is_whole(self) -> bool:
        return self.filled >= self.size

    def frame(self) -> memoryview:
        return self.view[: self.size]

    def finish(self) -> None:
        """Removes the frame from the unfinished requests. It keeps its buffer until `release`."""
        self._buffers.unfinished.frames.pop(self, None)

    def release(self) -> None:
        self._buffers.stop_waiting(self)
        self.finish()
        self._buffers.give_back(self.buffer)
        self.buffer, self.view, self.filled = bytearray(), memoryview(b""), 0  # `unfinished` may refer to this frame for a tick

    def grow(self) -> None:
        """Makes the buffer larger. The caller has checked the limit."""
        old, filled = len(self.buffer), self.view[: self.filled]
        self.buffer = self._buffers.lend(self._buffers.size_for(self.size, self.filled))
        self.view = memoryview(self.buffer)
        self.view[: self.filled] = filled
        self._buffers.bytes_lent -= old
