"""One client connection: cuts received bytes into frames, executes them in order, and sends the answers in that order.

A request is executed before earlier ones are answered: a produce that waits for its replicas does not hold up the append of the next one
(Kafka mutes the connection instead). An answer that is not there yet keeps its slot in `_slots`; the answers behind it wait.

Bounds: the size of a frame, the number of requests in flight, and the bytes of unsent answers and waiting requests. The large frames of all
connections share one more bound (`memory/`). At a bound the connection stops reading until it is below again. A `WireError` closes the
connection; so does any other error of a handler, after one line in the log. A broken invariant stops the broker.

On a listener that authenticates its clients a new connection is *not yet authenticated*: frames are small, only the APIs of the
authentication itself are executed, one at a time, and any other request or a refusal closes the connection. Listeners set the deadline.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Protocol

from ottla.base.errors import StorageError, WireError
from ottla.base.loop.guarded import guarded
from ottla.base.ports import Channel, Part
from ottla.requests.apis import TABLE
from ottla.requests.context import ConnectionInfo, RequestContext
from ottla.server.execution.scheduler import Scheduler
from ottla.server.foreign_protocols import HEADER_BYTES_MIN, bad_size
from ottla.server.memory.held_memory import ConnectionLimits, Slot
from ottla.server.memory.receive_buffer import SHARED_BYTES, LargeFrame, ReceiveBuffers
from ottla.wire.framing import header_reader

log = logging.getLogger("ottla.connection")

read_size = Struct(">i").unpack_from
read_key = Struct(">h").unpack_from
BEFORE_AUTHENTICATION = frozenset(api.key for api in TABLE.values() if api.is_before_authentication)


class Executor(Protocol):
    """`server/execution/dispatch.py`: runs one request frame."""

    scheduler: Scheduler

    def is_likely_costly(self, connection: Connection, frame: memoryview, at: int, size: int) -> bool:
        """Whether the request of `size` bytes at `at` is likely to take much time."""

    def execute(self, connection: Connection, frame: memoryview) -> bool:
        """Returns whether the connection must let others run."""

    def owes(self, connection: Connection, frame: memoryview) -> bool:
        """Mutes a new connection whose user has exceeded a quota; otherwise it is new no longer."""

    def flush_later(self, flush: Callable[[], None]) -> bool:
        """Calls `flush` once after the round of wakes that is under way; False if none is: the caller must call it itself."""


class Owner(Protocol):
    """`server/listener.py`: is notified when a connection ends, and why."""

    def on_closed(self, connection: Connection) -> None: ...
    def on_storage_error(self, error: StorageError) -> None: ...
    def on_broken_invariant(self, error: AssertionError) -> None: ...


class Connection:
    """One connection: bytes in by `buffer` and `received`, answers out through its channel (`ports.Receiver`)."""

    def __init__(
        self, executor: Executor, buffers: ReceiveBuffers, info: ConnectionInfo, limits: ConnectionLimits, channel: Channel, owner: Owner
    ) -> None:
        self._executor, self._buffers, self._limits, self._owner = executor, buffers, limits, owner  # shared by all connections
        self._scheduler = executor.scheduler
        # of this connection alone
        self.info, self.channel = info, channel
        self.idle_ticks = self.bytes_taken = 0  # counted up by the sweep of idle connections; what the peer had taken then
        self.read_header, self.client_id_bytes, self.header_bytes = header_reader(2), b"", 0  # the client id in the form of the header
        self.contexts: dict[int, RequestContext] = {}  # by version
        self.client_id: str | None = None
        # of what is under way
        self._held, self.held_since_tick, self.moved = b"", 0, 0
        self._large: LargeFrame | None = None
        self._slots: deque[Slot] = deque()
        self._out: list[Part] = []
        self._out_bytes = 0
        self._account = limits.held.open(self, info.host)
        self._has_slices = self._is_executing = self.is_closed = self.is_held_back = False
        self.cost_ns = self.heavy_requests = 0  # what its requests have cost lately, 0 while cheap; how many of the last ones were heavy
        self.is_held = self.is_muted = False  # nothing further may be executed yet: others go first; the client is throttled
        self.is_new = True  # no request was executed since its client has authenticated
        self._failed_correlation_id: int | None = None
        self._on_idle: Callable[[Connection], None] | None = None

    def buffer(self) -> memoryview:
        """The buffer for the next received bytes; empty if reading is paused because there is no memory for them."""
        if self._large is not None:
            return self._large.room()
        held = self._held
        if held:
            self._buffers.shared[: len(held)] = held
        elif self._scheduler.is_crowded and not self.contexts and self._buffers.is_full():
            self._yield(b"")  # one of a crowd that begins requests: each makes the broker drop another one
            return memoryview(b"")
        return self._buffers.shared_view[len(held) :]

    def received(self, count: int) -> None:
        """`count` bytes lie in what `buffer` returned."""
        self.idle_ticks = 0
        try:
            self._is_executing = True
            self._scheduler.begin_batch()
            try:
                if (large := self._large) is not None:
                    self._receive_large(large, count)
                elif self._held:
                    since, count = self.held_since_tick, count + len(self._take_held())
                    self._consume(self._buffers.shared_view, count)
                    if len(self._held) == count:  # a byte now and then makes no frame younger
                        self.held_since_tick = since
                else:
                    self._consume(self._buffers.shared_view, count)
                self._flush()
            finally:
                self._is_executing = False
                self._scheduler.end_batch()
            if self._slots or self.channel.queued_bytes:
                self._limits.held.relieve()
        except Exception as error:
            self.fail(error)

    def answer_whole(self, frame: bytes | bytearray) -> None:
        """Sends the answer of the request that is being executed, where it is one piece of bytes."""
        if self._slots:
            self._park(Slot([frame], len(frame)))
        else:
            self._out.append(frame)
            self._out_bytes += len(frame)

    def answer(self, parts: list[Part]) -> None:
        """Sends the answer of the request that is being executed."""
        if self._slots:
            self._park(Slot(parts, sum(map(len, parts))))
        else:
            self._queue(parts)

    def reserve(self, size: int = 0) -> Slot:
        """Keeps the place of the request that is being executed, and that keeps `size` bytes in memory until it is answered."""
        slot = Slot(None, size)
        self._park(slot)
        return slot

    def hold(self, size: int) -> Slot:
        """Keeps the place of the request that is being executed, and executes no further one until `release`."""
        self.is_held = True
        return self.reserve(size)

    def kept(self, frame: memoryview) -> memoryview:
        """The frame that is being executed, where it stays until `release`: small frames lie in a buffer that all connections share."""
        return frame if self._large is not None else memoryview(bytes(frame))

    def charge(self, slot: Slot, size: int) -> None:
        """The request keeps `size` bytes in memory from now on."""
        if not self.is_closed:
            self._account.park(size - slot.size)
            slot.size = size

    def release(self) -> None:
        """The request that was executed in turns needs its frame no longer, and the next may be executed."""
        self.is_held = False
        if self._large is not None and self._large.is_whole():
            self._drop_large(self._large)
        self.unchoke()

    def mute(self) -> None:
        """Stops reading and executing while `is_muted`, because the client is throttled. `unchoke` resumes."""
        self.is_muted = True
        self._choke(self._take_held())

    def resume(self) -> None:
        """Lets this connection go on, as others have had their turn; where its peer has not taken all answers, `drained` does."""
        self.is_held = False
        if not self.channel.queued_bytes:
            self.unchoke()

    def guarded(self, steps: Iterator[object]) -> Iterator[object]:
        """The same steps of a request; a failure closes the connection, as it does in one that is executed at once."""
        return guarded(steps, self.fail)

    def _park(self, slot: Slot) -> None:
        self._slots.append(slot)
        self._account.park(slot.size)

    def fill(self, slot: Slot, parts: list[Part]) -> None:
        """Puts the answer into its reserved place (an empty list: none is wanted), and sends what is due."""
        slot.parts = parts
        slots = self._slots
        if slots and slots[0] is not slot:  # an answer before it is not there yet
            self.charge(slot, sum(map(len, parts)))
        while slots and (head := slots[0].parts) is not None:
            self._account.park(-slots.popleft().size)
            self._queue(head)
        if not self._is_executing and not self._executor.flush_later(self._flush_filled):
            self._flush_filled()

    def _flush_filled(self) -> None:
        self._flush()
        if self.is_held_back:
            self.unchoke()

    def unchoke(self) -> None:
        """Executes what was held back, when answers have been given or sent."""
        if not self.is_held_back or self.is_closed:
            return
        if self._on_idle is not None:
            self._look_whether_idle()
            return
        if self.is_held or self.is_muted or self._is_over_bounds():
            return
        if self.info.is_refused:
            self._close_when_answered()
            return
        self.is_held_back = False
        self.channel.resume_reading()
        if self._held or self._large is not None:
            self._execute_waiting()

    def drained(self) -> None:
        """The peer has taken all answers."""
        self._limits.held.note_taken(self)
        self.unchoke()

    @property
    def held_bytes(self) -> int:
        """Bytes of a small frame that is not whole, or of requests that are held back; since `held_since_tick`."""
        return len(self._held)

    lent_bytes = held_bytes
    missing_bytes = SHARED_BYTES  # at most

    @property
    def is_served(self) -> bool:
        return bool(self.contexts)

    def _hold(self, held: bytes) -> None:
        if self.is_closed:
            return
        self._held = held
        self._buffers.bytes_lent += len(held)
        self._buffers.unfinished.note_begun(self)

    def _take_held(self) -> bytes:
        held, self._held = self._held, b""
        self._buffers.bytes_lent -= len(held)
        return held

    def finish(self, on_idle: Callable[[Connection], None]) -> None:
        """Stops reading and executing for good. Calls `on_idle` once every request has been answered, or the connection is closed."""
        self.is_held_back = True
        self._on_idle = on_idle
        self.channel.pause_reading()
        self._look_whether_idle()

    def _look_whether_idle(self) -> None:
        if self._on_idle is not None and (self.is_closed or self.is_idle()):
            on_idle, self._on_idle = self._on_idle, None
            on_idle(self)

    def is_idle(self) -> bool:
        """Nothing is under way: no answer is owed, nothing waits to be sent."""
        return not self._slots and not self._out and self.channel.queued_bytes == 0

    def closed(self) -> None:
        """The channel is closed: what was received of a frame is given up, and so is what its requests wait for."""
        self.is_closed = True
        self._limits.held.close(self)
        self._take_held()
        if self._large is not None:
            self._drop_large(self._large)
        for slot in self._slots:
            if slot.abandon is not None:
                slot.abandon()
        self._slots.clear()
        self.info.closed()
        self._owner.on_closed(self)
        self._look_whether_idle()

    def facts(self) -> dict[str, object]:
        """The attributes of a log line about this connection."""
        return {"listener": self.info.listener, "client_id": self.client_id, "correlation_id": self._failed_correlation_id}

    def _note_failed(self, view: memoryview, at: int) -> None:
        (self._failed_correlation_id,) = read_size(view, at + 4)  # for the log; a frame has at least a header's bytes

    def fail(self, error: Exception) -> None:
        """Any failure closes the connection, except for a broken invariant, which stops the broker."""
        if isinstance(error, AssertionError):
            self._owner.on_broken_invariant(error)
            return
        if isinstance(error, WireError):
            log.warning("closing %s: %s", self.info.identity, error, extra=self.facts())
        elif isinstance(error, StorageError):
            self._owner.on_storage_error(error)
        else:
            log.error("closing %s: a request failed", self.info.identity, exc_info=error, extra=self.facts())
        self.channel.close()

    def _receive_large(self, large: LargeFrame, count: int) -> None:
        large.came(count)
        if large.is_whole():
            if not self.info.is_authenticated:
                self._check_unauthenticated(large.frame())
            is_costly = self._scheduler.is_crowded and self._executor.is_likely_costly(self, large.frame(), 0, large.size)
            if is_costly or (self.is_new and self._executor.owes(self, large.frame())):
                large.finish()
                self._yield(b"")
            else:
                self._execute_large(large)

    def _execute_large(self, large: LargeFrame) -> None:
        try:
            self._executor.execute(self, large.frame())
        except Exception:
            self._note_failed(large.frame(), 0)
            raise
        if self.is_held:
            large.finish()
            self._choke(b"")
            return
        if self._large is not None:
            self._drop_large(large)
        if not self.info.is_authenticated and self._must_stop(b""):
            return
        if self.is_muted or (self._is_over_bounds() and not self._has_made_room()):
            self._choke(b"")

    def _drop_large(self, large: LargeFrame) -> None:
        self._large = None
        large.release()

    def _execute_waiting(self) -> None:
        try:
            self._is_executing = True
            self._scheduler.begin_batch()
            try:
                if self._large is not None and self._large.is_whole():
                    self._execute_large(self._large)
                elif self._held:
                    held = self._take_held()
                    self._consume(memoryview(bytearray(held)), len(held))
                self._flush()
            finally:
                self._is_executing = False
                self._scheduler.end_batch()
            if self._slots or self.channel.queued_bytes:
                self._limits.held.relieve()
        except Exception as error:
            self.fail(error)

    def _consume(self, view: memoryview, end: int) -> None:
        """Executes the whole frames in `view[:end]` and keeps the rest."""
        executor, scheduler, execute, bytes_max = self._executor, self._scheduler, self._executor.execute, self._limits.frame_bytes_max
        in_flight_max, out_bytes_max = self._limits.in_flight_max, self._limits.queued_bytes_max - self.channel.queued_bytes
        slots, account = self._slots, self._account
        at = 0
        if not self.info.is_authenticated:
            at = self._consume_unauthenticated(view, end)
        while end - at >= 4:
            (size,) = read_size(view, at)
            if size < HEADER_BYTES_MIN or size > bytes_max:
                raise WireError(bad_size(size, view[at:end], bytes_max))
            start, stop = at + 4, at + 4 + size
            if stop > end:
                break
            if (self._out_bytes + account.parked_bytes >= out_bytes_max or len(slots) >= in_flight_max) and not self._has_made_room():
                self._choke(bytes(view[at:end]))
                return
            if self.is_closed:  # by the flush that has made room
                return
            is_costly = scheduler.is_crowded and executor.is_likely_costly(self, view, start, size)
            if is_costly or (self.is_new and executor.owes(self, view[start:stop])):
                self._yield(bytes(view[at:end]))
                return
            try:
                must_yield = execute(self, view[start:stop])
            except Exception:
                self._note_failed(view, start)
                raise
            at = stop
            if must_yield and (self.is_held or self.is_muted or at < end):
                self._yield(bytes(view[at:end]))
                return
        if at < end and not self.is_closed:
            self._keep_tail(view, at, end)
        elif not self.info.is_authenticated and not self.is_held_back:
            self._must_stop(b"")

    def _yield(self, held: bytes) -> None:
        """Keeps the rest of the batch until the long request is done, or until the scheduler resumes the connection."""
        self._choke(held)
        if not self.is_held and not self.is_muted:
            self.is_held = True
            self._scheduler.resume_later(self)

    def _consume_unauthenticated(self, view: memoryview, end: int) -> int:
        """Executes the frames of an authentication, one at a time; returns where the frames behind it begin, which is the end unless it is
        complete: then nothing further may be executed yet."""
        bytes_max = self._limits.unauthenticated_frame_bytes_max
        at = 0
        while not self.info.is_authenticated and at < end:
            if self._slots:
                self._choke(bytes(view[at:end]))
                return end
            size = read_size(view, at)[0] if end - at >= 4 else HEADER_BYTES_MIN
            if size < HEADER_BYTES_MIN or size > bytes_max:
                raise WireError(bad_size(size, view[at:end], bytes_max))
            if end - at - 4 < size:
                self._keep_tail(view, at, end)
                return end
            frame = view[at + 4 : at + 4 + size]
            self._check_unauthenticated(frame)
            self._executor.execute(self, frame)
            at += 4 + size
            if not self.info.is_authenticated and self._must_stop(bytes(view[at:end])):
                return end
        return at

    def _check_unauthenticated(self, frame: memoryview) -> None:
        if (key := read_key(frame, 0)[0]) not in BEFORE_AUTHENTICATION:
            raise WireError(f"a request of api key {key} before authentication")
        self.info.note_before_authentication()

    def _must_stop(self, held: bytes) -> bool:
        """Whether the authentication waits for an answer of ours, or is over: `held` is executed later or never."""
        if self._slots:
            self._choke(held)
            return True
        if self.info.is_refused:
            self._close_when_answered()
            return True
        return False

    def _close_when_answered(self) -> None:
        self._flush()
        self.finish(lambda connection: connection.channel.close())

    def _keep_tail(self, view: memoryview, at: int, end: int) -> None:
        size = read_size(view, at)[0] if end - at >= 4 else 0
        if size + 4 > SHARED_BYTES:
            self._large = LargeFrame(self._buffers, size, view[at + 4 : end], self.channel, is_served=self.is_served)
        else:
            self._hold(bytes(view[at:end]))
        if (buffers := self._buffers).is_full():
            self._scheduler.note_work()
            if not buffers.make_room(self._large or self):
                raise WireError("there is no memory for more unfinished requests")

    def _choke(self, held: bytes) -> None:
        self.is_held_back = True
        self._hold(held)
        self.channel.pause_reading()

    def _has_made_room(self) -> bool:
        self._flush()
        return not self._is_over_bounds()

    def _is_over_bounds(self) -> bool:
        limits = self._limits
        kept_bytes = self._out_bytes + self._account.parked_bytes + self.channel.queued_bytes
        return len(self._slots) >= limits.in_flight_max or kept_bytes >= limits.queued_bytes_max

    def _queue(self, parts: list[Part]) -> None:
        self._out += parts
        if len(parts) > 1:
            self._has_slices = True
        self._out_bytes += sum(map(len, parts))

    def _flush(self) -> None:
        out = self._out
        if not out or self.is_closed:
            return
        self._out, self._out_bytes = [], 0
        if len(out) > 1 and not self._has_slices:
            out = [b"".join(out)]  # type: ignore[arg-type]
        self._has_slices = False
        self.channel.send(out)
        if self.channel.queued_bytes:
            self._limits.held.note_unsent(self)
            if not self._is_executing:
                self._limits.held.relieve()
