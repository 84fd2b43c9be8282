"""One client connection: cuts received bytes into frames and executes them in order.

The next request may be executed before earlier ones are answered, so a produce that waits for its replicas does not delay the append of the
next one (Kafka mutes the connection instead). `answer_queue.py` sends the answers in the order of the requests.

A connection reads and executes requests only in the state READING (`connection_state.py`). The size of a frame, the number of requests in
flight, and the bytes of unsent answers and waiting requests are limited. All connections together share the limits of `memory/`. A
`WireError` or any other failure of a request closes the connection. A broken invariant stops the broker.

On a listener that authenticates its clients, a new connection executes only ApiVersions and the requests of the authentication, with small
frames and one at a time. Any other request closes the connection, and so does a refused authentication. The listener closes connections
that do not authenticate in time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Protocol

from ottla.base.errors import StorageError, WireError
from ottla.base.loop.guarded import guarded
from ottla.base.ports import Channel, Part
from ottla.handlers.context import ConnectionInfo, RequestContext
from ottla.handlers.served_apis import TABLE
from ottla.server.answer_queue import AnswerQueue
from ottla.server.connection_state import ALLOWED, BLOCKED, CLOSED, ENDING, FINISHING, FULL, READING, THROTTLED, ConnectionState
from ottla.server.execution.scheduler import Scheduler
from ottla.server.foreign_protocols import HEADER_BYTES_MIN, bad_size
from ottla.server.inbox import Inbox
from ottla.server.memory.answer_memory import ConnectionLimits, Slot
from ottla.server.memory.receive_buffer import LargeFrame, ReceiveBuffers
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
        """Executes a request. Returns whether the time slice of the connection is over."""

    def owes(self, connection: Connection, frame: memoryview) -> bool:
        """Throttles a new connection if its client has exceeded a quota, and returns True. Otherwise marks it as not new."""

    def is_throttled(self, connection: Connection) -> bool:
        """Whether the client must wait for a quota."""

    @property
    def flush_later(self) -> Callable[[Callable[[], None]], bool]:
        """Calls a function after the current round of wakes. Returns False if no round is running; the caller must then call the
        function."""


class ConnectionOwner(Protocol):
    """`server/listener.py`: is notified of closed connections, and of failures that concern more than one connection."""

    def on_closed(self, connection: Connection) -> None: ...
    def on_storage_error(self, error: StorageError) -> None: ...
    def on_broken_invariant(self, error: AssertionError) -> None: ...


class Connection:
    """One connection. The event loop calls `buffer`, `received`, `drained` and `closed` (`ports.Receiver`)."""

    def __init__(
        self, executor: Executor, buffers: ReceiveBuffers, info: ConnectionInfo, limits: ConnectionLimits, channel: Channel,
        owner: ConnectionOwner,
    ) -> None:  # fmt: skip
        # shared by all connections
        self._executor = executor
        self._flush_later = executor.flush_later
        self._scheduler = executor.scheduler
        self._buffers = buffers
        self._limits = limits
        self._memory = limits.memory
        self._owner = owner
        # this client
        self.info = info
        self.channel = channel
        self.client_id: str | None = None
        self.client_id_bytes = b""
        """The client id as it is encoded in each request header."""
        self.read_header = header_reader(2)
        self.header_bytes = 0
        self.contexts: dict[int, RequestContext] = {}
        """Request contexts, by the API version of the request."""
        self.is_new = True
        """Whether no request was executed since the client has authenticated."""
        # current work
        self.state = READING
        self.inbox = Inbox(buffers, channel, self.contexts)
        self.answers = AnswerQueue(channel, limits, info.host)
        self._is_in_batch = False  # whether `received` or `_execute_waiting` is executing requests
        self._on_idle: Callable[[Connection], None] | None = None
        self._failed_correlation_id: int | None = None
        # counters
        self.cost_ns = 0  # see `scheduler.ScheduledClient`
        self.idle_ticks = 0  # counted by the sweep of idle connections
        self.bytes_taken = 0  # `bytes_sent` of the channel at the last sweep

    # Receiving

    def buffer(self) -> memoryview:
        """Returns the buffer for the next received bytes. It is empty if there is no memory for them; then reading is paused."""
        if self._scheduler.is_crowded and not self.contexts and self.inbox.is_empty and self._buffers.is_full():
            self._yield(b"")  # With many new connections, the frame of each would evict the frame of another.
            return memoryview(b"")
        inbox = self.inbox
        return inbox.buffer() if inbox.tail or inbox.large is not None else self._buffers.shared_view

    def received(self, count: int) -> None:
        """Executes the complete requests after `count` bytes were received into `buffer`."""
        self.idle_ticks = 0
        inbox = self.inbox
        try:
            self._is_in_batch = True
            self._scheduler.begin_batch()
            try:
                if (large := inbox.large) is not None:
                    self._receive_large(large, count)
                elif inbox.tail:
                    begun_tick, count = inbox.begun_tick, count + len(inbox.take())
                    self._consume(self._buffers.shared_view, count)
                    if len(inbox.tail) == count:  # The same frame is still incomplete, so it keeps its age.
                        inbox.begun_tick = begun_tick
                else:
                    self._consume(self._buffers.shared_view, count)
                if self.answers.out_bytes and self.state is not CLOSED:
                    self.answers.flush()
            finally:
                self._is_in_batch = False
                self._scheduler.end_batch()
            if self._memory.total_bytes > self._memory.bytes_max:
                self._memory.relieve()
        except Exception as error:
            self.fail(error)

    def _execute_waiting(self) -> None:
        """Executes the requests that were received before the connection was stopped."""
        inbox = self.inbox
        try:
            self._is_in_batch = True
            self._scheduler.begin_batch()
            try:
                if inbox.large is not None and inbox.large.is_whole():
                    self._execute_large(inbox.large)
                elif inbox.tail:
                    tail = inbox.take()
                    self._consume(memoryview(bytearray(tail)), len(tail))
                self._flush()
            finally:
                self._is_in_batch = False
                self._scheduler.end_batch()
            self._memory.relieve()
        except Exception as error:
            self.fail(error)

    def _consume(self, view: memoryview, end: int) -> None:
        """Executes the complete frames in `view[:end]` and keeps the rest."""
        executor, limits, answers = self._executor, self._limits, self.answers
        slots, account, out_bytes_max = answers.slots, answers.account, limits.queued_bytes_max - self.channel.queued_bytes
        at = 0
        if not self.info.is_authenticated:
            at = self._consume_unauthenticated(view, end)
        while end - at >= 4:
            (size,) = read_size(view, at)
            if size < HEADER_BYTES_MIN or size > limits.frame_bytes_max:
                raise WireError(bad_size(size, view[at:end], limits.frame_bytes_max))
            start = at + 4
            stop = start + size
            if stop > end:
                break
            if answers.out_bytes + account.parked_bytes >= out_bytes_max or len(slots) >= limits.in_flight_max:
                if self._is_full():
                    self._move(FULL)
                    self._stop(view[at:end])
                    return
                if self.state is CLOSED:  # by the flush
                    return
            if self._scheduler.is_crowded or self.is_new:
                is_costly = self._scheduler.is_crowded and executor.is_likely_costly(self, view, start, size)
                if is_costly or (self.is_new and executor.owes(self, view[start:stop])):
                    self._yield(view[at:end])
                    return
            try:
                is_over = executor.execute(self, view[start:stop])
            except Exception:
                self._note_failed(view, start)
                raise
            at = stop
            if self.state is not READING or (is_over and at < end):
                self._yield(view[at:end])
                return
        if at < end and self.state is not CLOSED:
            self._keep_start(view[at:end])
        elif not self.info.is_authenticated and self.state is READING:
            self._must_stop(b"")

    def _keep_start(self, start: memoryview) -> None:
        """Keeps the start of a frame until the rest is received."""
        if self.inbox.keep_start(start):
            self._scheduler.note_work()
            if not self.inbox.evict_for():
                raise WireError("there is no memory for more unfinished requests")

    # Large frames

    def _receive_large(self, large: LargeFrame, count: int) -> None:
        large.note_received(count)
        if large.is_whole():
            if not self.info.is_authenticated:
                self._check_unauthenticated(large.frame())
            is_costly = self._scheduler.is_crowded and self._executor.is_likely_costly(self, large.frame(), 0, large.size)
            if is_costly or (self.is_new and self.info.is_authenticated and self._executor.owes(self, large.frame())):
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
        if self.state is BLOCKED:
            large.finish()
            self._stop(b"")
            return
        self.inbox.drop_large()
        if not self.info.is_authenticated and self._must_stop(b""):
            return
        if self.state is READING and self._is_full():
            self._move(FULL)
        if self.state is not READING:
            self._stop(b"")

    # Authentication

    def _consume_unauthenticated(self, view: memoryview, end: int) -> int:
        """Executes the frames of an authentication, one at a time. Returns the position behind them, or `end` if the authentication is not
        complete."""
        bytes_max = self._limits.unauthenticated_frame_bytes_max
        at = 0
        while not self.info.is_authenticated and at < end:
            if self.answers.slots:
                self._must_stop(view[at:end])
                return end
            size = read_size(view, at)[0] if end - at >= 4 else HEADER_BYTES_MIN
            if size < HEADER_BYTES_MIN or size > bytes_max:
                raise WireError(bad_size(size, view[at:end], bytes_max))
            if end - at - 4 < size:
                self._keep_start(view[at:end])
                return end
            frame = view[at + 4 : at + 4 + size]
            self._check_unauthenticated(frame)
            self._executor.execute(self, frame)
            at += 4 + size
            if not self.info.is_authenticated and self._must_stop(view[at:end]):
                return end
        return at

    def _check_unauthenticated(self, frame: memoryview) -> None:
        if (key := read_key(frame, 0)[0]) not in BEFORE_AUTHENTICATION:
            raise WireError(f"a request of api key {key} before authentication")
        self.info.note_before_authentication()

    def _must_stop(self, rest: memoryview | bytes) -> bool:
        """Stops a connection whose authentication waits for an answer, or was refused. Returns whether it is stopped."""
        if self.answers.slots:
            if self.state is READING:
                self._move(FULL)
            self._stop(rest)
            return True
        if self.info.is_refused:
            self._close_when_answered()
            return True
        return False

    def _close_when_answered(self) -> None:
        self._flush()
        self.finish(lambda connection: connection.channel.close())

    # Answers

    def fill(self, slot: Slot, parts: list[Part]) -> None:
        """Answers the request of the slot. Answers that may be sent are sent at the end of the current batch. Outside of a batch they are
        sent now, or at the end of the current round of wakes if other requests of this connection wait, whose answers may follow."""
        answers = self.answers
        answers.fill(slot, parts)
        if not self._is_in_batch and (not answers.slots or not self._flush_later(self._flush_filled)):
            self._flush_filled()

    def _flush_filled(self) -> None:
        if self.state is not CLOSED:
            self.answers.flush()
        if self._memory.total_bytes > self._memory.bytes_max:
            self._memory.relieve()
        if self.state is not READING:
            self._note_answered()

    def _flush(self) -> None:
        if self.state is not CLOSED:
            self.answers.flush()

    def drained(self) -> None:
        """Called when all answers were written to the socket."""
        self.answers.account.note_taken()
        self._note_answered()

    def _note_answered(self) -> None:
        """Called when requests were answered or answers were written to the socket: continues a full connection, and completes `finish`."""
        if self.state is FULL:
            self._continue()
        elif self.state is FINISHING:
            self._notify_if_idle()

    def _is_full(self) -> bool:
        """Whether too much is in flight or unsent, even after a flush. Before the authentication one request is in flight at most."""
        in_flight_max = self._limits.in_flight_max if self.info.is_authenticated else 1
        if not self.answers.is_full(in_flight_max):
            return False
        self._flush()
        return self.answers.is_full(in_flight_max)

    # States

    def _move(self, state: ConnectionState) -> None:
        assert state in ALLOWED[self.state], f"a connection from {self.state.name} to {state.name}"
        self.state = state

    def block(self, slot: Slot) -> None:
        """Appends the slot of the request that is being executed. No further request is executed until `release`."""
        if self.state not in ENDING:
            self._move(BLOCKED)
        self.answers.hold(slot)

    def release(self) -> None:
        """Ends `block`: the request no longer needs its frame, and the next one may be executed."""
        self.inbox.drop_executed()
        if self.state is BLOCKED:
            self._continue()
        elif self.state is FINISHING:
            self._notify_if_idle()

    def resume(self) -> None:
        """Called by the scheduler when other connections have been served. Continues, unless the peer has to take answers first."""
        if self.state is BLOCKED:
            if self.channel.queued_bytes:
                self._move(FULL)
            else:
                self._continue()

    def throttle(self) -> None:
        """Stops reading until `end_throttle`, because the client has exceeded a quota."""
        if self.state is READING or self.state is FULL:
            self._move(THROTTLED)
            if not self._is_in_batch:
                self.inbox.set_waiting(True)
                self.channel.pause_reading()

    def end_throttle(self) -> None:
        if self.state is THROTTLED:
            self._continue()

    def _yield(self, rest: memoryview | bytes) -> None:
        """Stops the batch. The scheduler resumes the connection, unless the connection waits for something else."""
        if self.state is READING:
            self._move(BLOCKED)
            self._scheduler.resume_later(self)
        self._stop(rest)

    def _stop(self, rest: memoryview | bytes) -> None:
        """Keeps the bytes that are not executed yet, and stops reading."""
        if self.state is not CLOSED:
            self.inbox.keep(rest, waits_for_broker=True)
            self.channel.pause_reading()

    def _continue(self) -> None:
        """Reads and executes again, unless there is another reason to wait."""
        if self._executor.is_throttled(self):
            state = THROTTLED
        elif not self._is_in_batch and self._is_full():
            state = FULL
        else:
            state = READING
        if state is not self.state:
            self._move(state)
        if self._is_in_batch:
            return
        self.inbox.set_waiting(state is not READING)
        if state is not READING:
            return
        if self.info.is_refused:
            self._close_when_answered()
            return
        self.channel.resume_reading()
        if not self.inbox.is_empty:
            self._execute_waiting()

    def kept(self, frame: memoryview) -> memoryview:
        """Returns the frame that is being executed, in memory that stays valid until `release`. Small frames are in the shared buffer."""
        return frame if self.inbox.large is not None else memoryview(bytes(frame))

    # The end

    def finish(self, on_idle: Callable[[Connection], None]) -> None:
        """Executes no further request. Calls `on_idle` when the answers of all requests were written to the socket, or the connection is
        closed."""
        if self.state not in ENDING:
            self._move(FINISHING)
        self._on_idle = on_idle
        self.inbox.set_waiting(True)
        self.channel.pause_reading()
        self._notify_if_idle()

    def _notify_if_idle(self) -> None:
        if self._on_idle is not None and (self.state is CLOSED or self.is_idle()):
            on_idle, self._on_idle = self._on_idle, None
            on_idle(self)

    def is_idle(self) -> bool:
        """Whether every request has been answered and all answers were written to the socket."""
        return self.answers.is_empty()

    def closed(self) -> None:
        """Called when the channel is closed."""
        self._move(CLOSED)
        self.inbox.close()
        self.answers.close()
        self.info.closed()
        self._owner.on_closed(self)
        self._notify_if_idle()

    def fail(self, error: Exception) -> None:
        """Handles a failed request: a broken invariant stops the broker, any other failure closes the connection."""
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

    def guarded(self, steps: Iterator[object]) -> Iterator[object]:
        """Returns the steps of a request, with failures passed to `fail`."""
        return guarded(steps, self.fail)

    def facts(self) -> dict[str, object]:
        """Returns the attributes of a log line about this connection."""
        return {"listener": self.info.listener, "client_id": self.client_id, "correlation_id": self._failed_correlation_id}

    def _note_failed(self, view: memoryview, at: int) -> None:
        (self._failed_correlation_id,) = read_size(view, at + 4)  # a frame has at least the bytes of a header
