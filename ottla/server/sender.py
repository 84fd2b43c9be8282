"""How answers leave: in order, without a copy where the kernel can do it, and never more queued than the socket takes.

An answer is a list of parts: bytes, or a `FileSlice` of a log segment. With nothing queued, bytes go straight to the socket and slices by
`sendfile`; what the socket does not take waits in a queue that is continued when it is writable again. `queued_bytes` is what the
connection looks at to stop reading from a peer that does not read its answers.
"""

from __future__ import annotations

import os
import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence

from ottla.storage.file_slice import FileSlice

Part = bytes | bytearray | memoryview | FileSlice

SLICE_PIECE_BYTES = 1 << 20
"""A slice that cannot go by sendfile is read and sent in pieces of this size."""

MORE = getattr(socket, "MSG_MORE", 0)


class SocketSender:
    """Writes to one non-blocking socket of the loop."""

    __slots__ = ("_file_position", "_loop", "_on_drained", "_on_lost", "_queue", "_socket", "bytes_sent", "queued_bytes")

    def __init__(
        self, loop: AbstractEventLoop, sock: socket.socket, on_drained: Callable[[], None], on_lost: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._queue: deque[Part] = deque()
        self._file_position = 0  # bytes of the slice at the head of the queue that are sent
        self._on_drained = on_drained
        self._on_lost = on_lost
        self.queued_bytes = 0
        self.bytes_sent = 0

    def send(self, parts: Sequence[Part]) -> None:
        """Takes the parts over; `on_lost` is called (from here or later) when the peer is gone."""
        if not self._queue and len(parts) == 1 and not isinstance(part := parts[0], FileSlice):
            self._send_bytes(part)
            return
        was_idle = not self._queue
        for part in parts:
            self._queue.append(part)
            self.queued_bytes += len(part)
        if was_idle:
            self._continue(is_first=True)

    def close(self) -> None:
        if self._queue:
            self._queue.clear()
            self._loop.remove_writer(self._socket.fileno())
        self.queued_bytes = 0

    def _send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        """The ordinary case: one answer, an idle socket."""
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._on_lost()
            return
        self.bytes_sent += sent
        if sent < len(data):
            self._queue.append(memoryview(data)[sent:])
            self.queued_bytes = len(data) - sent
            self._loop.add_writer(self._socket.fileno(), self._continue)

    def _continue(self, is_first: bool = False) -> None:
        try:
            is_drained = self._drain()
        except OSError:
            self.close()
            self._on_lost()
            return
        if is_drained:
            if not is_first:
                self._loop.remove_writer(self._socket.fileno())
            self._on_drained()
        elif is_first:
            self._loop.add_writer(self._socket.fileno(), self._continue)

    def _drain(self) -> bool:
        """Sends until the queue is empty (True) or the socket is full (False)."""
        queue = self._queue
        while queue:
            part = queue[0]
            if isinstance(part, FileSlice):
                if not self._send_slice(part):
                    return False
            elif not self._send_run():
                return False
        return True

    def _send_run(self) -> bool:
        """Sends the run of bytes at the head of the queue as one write; True when all of it went."""
        queue = self._queue
        if len(queue) > 1 and not isinstance(queue[1], FileSlice):
            self._join_run()
        part = queue[0]
        assert not isinstance(part, FileSlice)
        try:
            sent = self._socket.send(part, MORE if len(queue) > 1 else 0)
        except BlockingIOError:
            return False
        self._count(sent)
        if sent < len(part):
            queue[0] = memoryview(part)[sent:]
            return False
        queue.popleft()
        return True

    def _join_run(self) -> None:
        run: list[bytes | bytearray | memoryview] = []
        while self._queue and not isinstance(self._queue[0], FileSlice):
            run.append(self._queue.popleft())  # type: ignore[arg-type]
        self._queue.appendleft(b"".join(run))

    def _send_slice(self, part: FileSlice) -> bool:
        """Sends the slice at the head of the queue; True when all of it went."""
        left = len(part) - self._file_position
        while left:
            try:
                sent = self._send_piece(part, left)
            except BlockingIOError:
                return False
            if sent == 0:
                raise OSError("a segment is shorter than the slice that was promised of it")
            self._file_position += sent
            self._count(sent)
            left -= sent
        self._file_position = 0
        self._queue.popleft()
        return True

    def _send_piece(self, part: FileSlice, left: int) -> int:
        position = part.position + self._file_position
        descriptor = part.fileno()
        if descriptor >= 0:
            return os.sendfile(self._socket.fileno(), descriptor, position, left)
        return self._socket.send(part.read()[self._file_position : self._file_position + SLICE_PIECE_BYTES])

    def _count(self, sent: int) -> None:
        self.queued_bytes -= sent
        self.bytes_sent += sent
