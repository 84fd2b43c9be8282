"""One client connection: received bytes are cut into frames, executed in order; answers leave in that order.

The work of a request does not wait for the answers before it: a produce that waits for its replicas does not hold up the append of the
next one (Kafka mutes the connection instead). Answers that are not there yet keep their place in `_slots`; what is behind them waits.

Bounds: a frame's size, requests in flight, and bytes: those of answers that are not sent and of requests that wait for theirs, here, and
those of large frames of all connections together (`receive_buffer.py`). At a bound the connection stops reading until it is below again. A
`WireError` closes the connection; so does any other error of a handler, after one line in the log. A broken invariant stops the broker.
"""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from ottla.base.errors import StorageError, WireError
from ottla.requests.context import ConnectionInfo, RequestContext
from ottla.server.receive_buffer import SHARED_BYTES, LargeFrame, ReceiveBuffers
from ottla.server.sender import Part, SocketSender
from ottla.server.strangers import what_came

log = logging.getLogger("ottla.connection")

read_size = Struct(">i").unpack_from
HEADER_BYTES_MIN = 10


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one connection; all share this, and `queued_bytes_max` shrinks as they become many."""

    frame_bytes_max: int
    in_flight_max: int
    queued_bytes_max: int


class Slot:
    """The place of an answer that is not there yet, or must wait for one that is not; `size` is what it keeps in memory meanwhile."""

    __slots__ = ("abandon", "parts", "size")

    def __init__(self, parts: list[Part] | None, size: int) -> None:
        self.parts = parts
        self.size = size
        self.abandon: Callable[[], None] | None = None
        """Gives up the request when nobody is there to take its answer."""


class Executor(Protocol):
    """`server/dispatch.py`: runs one request frame."""

    def execute(self, connection: Connection, frame: memoryview) -> None: ...

    def before_batch(self) -> None:
        """Called before a connection executes what one read brought."""

    def after_batch(self) -> None:
        """Called when it has, and its answers are on their way."""

    def flush_later(self, flush: Callable[[], None]) -> bool:
        """Calls `flush` once when all who are being woken have given their answers; False if nobody is: then it is for the caller."""


class Shell(Protocol):
    """What the connection needs of the socket under it."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def guard(self, work: Callable[[], None]) -> None:
        """Runs work that may fail as `received` may."""


class Connection:
    """The machine of one connection, without a socket: bytes in by `buffer` and `received`, answers out through `sender`."""

    def __init__(
        self, executor: Executor, buffers: ReceiveBuffers, info: ConnectionInfo, limits: ConnectionLimits, shell: Shell
    ) -> None:
        # shared by all connections
        self._executor = executor
        self._buffers = buffers
        self._limits = limits
        # of this connection
        self.info = info
        self.shell = shell
        self.sender: SocketSender
        self.client_id_bytes = b""  # as they stand in the header, with their length
        self.contexts: dict[int, RequestContext] = {}  # by version
        self.client_id: str | None = None
        # of what is under way
        self._held = b""
        self._large: LargeFrame | None = None
        self._slots: deque[Slot] = deque()
        self._out: list[Part] = []
        self._out_bytes = 0
        self._parked_bytes = 0  # the sizes of all slots
        self._has_slices = False
        self._is_executing = False
        self._is_choked = False
        self._failed_correlation_id: int | None = None
        self.is_closed = False

    def buffer(self) -> memoryview:
        """Where the next bytes are to be received."""
        if self._large is not None:
            return self._large.room()
        held = self._held
        if held:
            self._buffers.shared[: len(held)] = held
            return self._buffers.shared_view[len(held) :]
        return self._buffers.shared_view

    def received(self, count: int) -> None:
        """`count` bytes lie in what `buffer` returned."""
        self._is_executing = True
        self._executor.before_batch()
        try:
            large = self._large
            if large is None:
                end = len(self._held) + count
                self._held = b""
                self._consume(self._buffers.shared_view, end)
            else:
                large.filled += count
                if large.is_whole():
                    self._execute_large(large)
                elif not large.make_room():
                    self.shell.pause_reading()
                    self._buffers.wait(large, self.shell)
            self._flush()
        finally:
            self._is_executing = False
            self._executor.after_batch()

    def answer_whole(self, frame: bytes | bytearray) -> None:
        """The same for an answer that is one piece of bytes."""
        if self._slots:
            self._park(Slot([frame], len(frame)))
        else:
            self._out.append(frame)
            self._out_bytes += len(frame)

    def answer(self, parts: list[Part]) -> None:
        """The answer of the request that is being executed."""
        if self._slots:
            self._park(Slot(parts, sum(map(len, parts))))
        else:
            self._queue(parts)

    def reserve(self, size: int = 0) -> Slot:
        """Keeps the place of the request that is being executed, and that keeps `size` bytes in memory until it is answered."""
        slot = Slot(None, size)
        self._park(slot)
        return slot

    def _park(self, slot: Slot) -> None:
        self._slots.append(slot)
        self._parked_bytes += slot.size

    def fill(self, slot: Slot, parts: list[Part]) -> None:
        """A reserved answer is there (an empty list: none is wanted)."""
        slot.parts = parts
        slots = self._slots
        if slots and slots[0] is not slot:  # it goes on waiting
            self._parked_bytes -= slot.size
            slot.size = sum(map(len, parts))
            self._parked_bytes += slot.size
        while slots and (head := slots[0].parts) is not None:
            self._parked_bytes -= slots.popleft().size
            self._queue(head)
        if not self._is_executing and not self._executor.flush_later(self._flush_filled):
            self._flush_filled()

    def _flush_filled(self) -> None:
        self._flush()
        if self._is_choked:
            self.unchoke()

    def unchoke(self) -> None:
        """Goes on with what was received, when answers have left or come."""
        if not self._is_choked or self.is_closed or self._is_over_bounds():
            return
        self._is_choked = False
        self.shell.resume_reading()
        if held := self._held:
            self._held = b""
            self.shell.guard(lambda: self._execute_held(held))

    def is_idle(self) -> bool:
        """Nothing is under way: no answer is owed, nothing waits to be sent."""
        return not self._slots and not self._out and self.sender.queued_bytes == 0

    def abandon(self) -> None:
        """The peer is gone: what was received of a frame and what it waited for is given up."""
        if self._large is not None:
            self._large.release()
            self._large = None
        for slot in self._slots:
            if slot.abandon is not None:
                slot.abandon()
        self.info.closed()

    def facts(self) -> dict[str, object]:
        """What a line of the log about this connection carries."""
        return {"listener": self.info.listener, "client_id": self.client_id, "correlation_id": self._failed_correlation_id}

    def _note_failed(self, view: memoryview, at: int) -> None:
        """Which request it was, for the log; a frame has at least a header's bytes."""
        (self._failed_correlation_id,) = read_size(view, at + 4)

    def _execute_large(self, large: LargeFrame) -> None:
        try:
            self._executor.execute(self, large.frame())
        except Exception:
            self._note_failed(large.frame(), 0)
            raise
        self._large = None
        large.release()
        if self._is_over_bounds() and not self._has_made_room():
            self._choke(b"")

    def _execute_held(self, held: bytes) -> None:
        self._is_executing = True
        self._executor.before_batch()
        try:
            self._consume(memoryview(bytearray(held)), len(held))
            self._flush()
        finally:
            self._is_executing = False
            self._executor.after_batch()

    def _consume(self, view: memoryview, end: int) -> None:
        """Executes the whole frames in `view[:end]` and keeps the rest."""
        execute, bytes_max = self._executor.execute, self._limits.frame_bytes_max
        in_flight_max, out_bytes_max = self._limits.in_flight_max, self._limits.queued_bytes_max - self.sender.queued_bytes
        slots = self._slots
        at = 0
        while end - at >= 4:
            (size,) = read_size(view, at)
            if size < HEADER_BYTES_MIN or size > bytes_max:
                raise WireError(what_came(view[at:end]) or f"a frame of {size} bytes is outside {HEADER_BYTES_MIN}..{bytes_max}")
            if end - at - 4 < size:
                break
            if (self._out_bytes + self._parked_bytes >= out_bytes_max or len(slots) >= in_flight_max) and not self._has_made_room():
                self._choke(bytes(view[at:end]))
                return
            try:
                execute(self, view[at + 4 : at + 4 + size])
            except Exception:
                self._note_failed(view, at + 4)
                raise
            at += 4 + size
        if at < end:
            self._keep_tail(view, at, end)

    def _keep_tail(self, view: memoryview, at: int, end: int) -> None:
        size = read_size(view, at)[0] if end - at >= 4 else 0
        if size + 4 > SHARED_BYTES:
            self._large = LargeFrame(self._buffers, size, view[at + 4 : end])
        else:
            self._held = bytes(view[at:end])

    def _choke(self, held: bytes) -> None:
        self._is_choked = True
        self._held = held
        self.shell.pause_reading()

    def _has_made_room(self) -> bool:
        self._flush()
        return not self._is_over_bounds()

    def _is_over_bounds(self) -> bool:
        limits = self._limits
        kept_bytes = self._out_bytes + self._parked_bytes + self.sender.queued_bytes
        return len(self._slots) >= limits.in_flight_max or kept_bytes >= limits.queued_bytes_max

    def _queue(self, parts: list[Part]) -> None:
        self._out += parts
        if len(parts) > 1:
            self._has_slices = True
        for part in parts:
            self._out_bytes += len(part)

    def _flush(self) -> None:
        out = self._out
        if not out or self.is_closed:
            return
        self._out = []
        self._out_bytes = 0
        if len(out) > 1 and not self._has_slices:
            out = [b"".join(out)]  # type: ignore[arg-type]
        self._has_slices = False
        self.sender.send(out)


class SocketShell:
    """The socket of a connection, on the loop."""

    def __init__(
        self, loop: AbstractEventLoop, sock: socket.socket, make: Callable[[SocketShell], Connection],
        on_closed: Callable[[SocketShell], None], on_storage_error: Callable[[StorageError], None],
        on_broken_invariant: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._on_closed = on_closed
        self._on_storage_error = on_storage_error
        self._on_broken_invariant = on_broken_invariant
        self._is_reading = False
        self.idle_ticks = 0  # counted up by the sweep of idle connections
        self.bytes_taken = 0  # what the peer had taken at the last sweep
        self.connection = make(self)
        self.connection.sender = SocketSender(loop, sock, self.connection.unchoke, self.close)
        self.resume_reading()

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket.fileno())

    def resume_reading(self) -> None:
        if not self._is_reading and not self.connection.is_closed:
            self._is_reading = True
            self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def close(self) -> None:
        connection = self.connection
        if connection.is_closed:
            return
        connection.is_closed = True
        self.pause_reading()
        connection.sender.close()
        connection.abandon()
        self._socket.close()
        self._on_closed(self)

    def _on_readable(self) -> None:
        connection = self.connection
        try:
            count = self._socket.recv_into(connection.buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self.close()
            return
        self.idle_ticks = 0
        try:
            connection.received(count)
        except Exception as error:
            self._fail(error)

    def guard(self, work: Callable[[], None]) -> None:
        """Runs what may fail as the work on received bytes may."""
        try:
            work()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Whatever went wrong closes the connection, save a broken invariant, which stops the broker."""
        if isinstance(error, AssertionError):
            self._on_broken_invariant(error)
            return
        identity = self.connection.info.identity
        if isinstance(error, WireError):
            log.warning("closing %s: %s", identity, error, extra=self.connection.facts())
        elif isinstance(error, StorageError):
            self._on_storage_error(error)
        else:
            log.error("closing %s: a request failed", identity, exc_info=error, extra=self.connection.facts())
        self.close()
