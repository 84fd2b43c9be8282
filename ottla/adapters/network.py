"""Production network: plain sockets on the event loop.

A channel receives directly into its user's buffer. It sends bytes and small slices of files with one system call, and large slices by
`sendfile`. Bytes that the socket does not accept are queued until it is writable again. Readers and writers are registered with the loop
directly, because asyncio's transports copy the data once more and keep a buffer for each connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence

from ottla.base.ports import NO_HOST_NAME, REFUSED, AddressError, Channel, Part, Receiver, Slice

log = logging.getLogger("ottla.network")

ACCEPT_BURST = 16
"""Connections accepted in one iteration of the event loop. A low value, because the next iteration executes the first requests of all of
them, whose cost is not known yet."""
ACCEPT_PAUSE_SECONDS = 0.1
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
CONNECT_SECONDS_MAX = 10.0
SLICE_PIECE_BYTES = 1 << 20
"""Size of a piece of a slice that cannot be sent by `sendfile` and is read instead."""
JOINED_BYTES_MAX = 1 << 20
SMALL_SLICE_BYTES = 32 << 10
"""Slices up to this size are read and sent in one write with the bytes around them. One call takes a third of the CPU of separate calls for
bytes, slice and bytes, and the peer wakes once. From 64 KiB on `sendfile` is cheaper."""
READ_SLICES_BYTES_MAX = 64 << 10
"""Maximum size of a write after a slice is added to it. Bytes that the socket does not accept are kept in memory."""
SENT_BYTES_PER_TURN = 8 << 20
"""Bytes that a channel sends in one iteration of the event loop. A fast receiver therefore does not block the other connections."""
UNSENT_BYTES_MAX = 256 << 10
"""Bytes that the kernel buffers for a slow peer, where `TCP_NOTSENT_LOWAT` exists. Without it send buffers grow to 4 MiB: 300 clients that
did not read held a gigabyte of kernel memory, and with 600 the kernel dropped segments of all connections."""
UNSENT_OPTION = getattr(socket, "TCP_NOTSENT_LOWAT", None)
MORE = getattr(socket, "MSG_MORE", 0)
ERRORS_OF_PEERS = frozenset({errno.EAGAIN, errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOTCONN})
"""Errors of `sendfile` that concern the peer; all others concern the file."""
SHORT_SEGMENT = "a segment file is shorter than the slice to be sent"


def _no_room() -> memoryview:
    return memoryview(b"")


def _ignore(count: int) -> None:
    """Ignores bytes received after the close."""


class SocketChannel:
    """`ports.Channel` over one connected socket, non-blocking."""

    __slots__ = (
        "_buffer", "_descriptor", "_file_position", "_is_closed", "_is_reading", "_is_writing", "_loop", "_queue", "_receive_into",
        "_received", "_receiver", "_socket", "_turn_end", "bytes_sent", "peer_host", "peer_port", "queued_bytes",
    )  # fmt: skip

    def __init__(self, loop: AbstractEventLoop, sock: socket.socket, peer_host: str = "", peer_port: int = 0) -> None:
        self._loop = loop
        self._socket = sock
        self._descriptor = sock.fileno()
        self._receive_into = sock.recv_into
        self._receiver: Receiver | None = None
        self._queue: deque[Part] = deque()
        self._file_position = 0  # bytes of the slice at the head of the queue that were sent already
        self._turn_end = 0  # upper bound of `bytes_sent` in this iteration of the loop
        self._is_reading = False
        self._is_writing = False
        self._is_closed = False
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.queued_bytes = 0
        self.bytes_sent = 0

    def unsent_bytes(self) -> int:
        return sum(len(part) for part in self._queue if not isinstance(part, Slice))

    def local_host(self) -> str:
        try:
            return str(self._socket.getsockname()[0])
        except OSError:
            return ""

    # Reading

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = receiver.buffer
        self._received = receiver.received
        self.resume_reading()

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _on_readable(self) -> None:
        buffer = self._buffer()
        if not buffer:
            return
        try:
            count = self._receive_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if count:
            self._received(count)
        else:
            self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self.pause_reading()
        self._is_closed = True
        self._queue.clear()
        if self._is_writing:
            self._loop.remove_writer(self._descriptor)
        self.queued_bytes = 0
        self._socket.close()
        receiver, self._receiver = self._receiver, None
        self._buffer, self._received = _no_room, _ignore  # breaks the reference cycle, so that no garbage collection is needed
        if receiver is not None:
            receiver.closed()

    # Sending

    def send(self, parts: Sequence[Part]) -> None:
        if self._is_closed:
            return
        if not self._queue and len(parts) == 1 and not isinstance(part := parts[0], Slice):
            # One answer on an idle socket: the common case.
            try:
                sent = self._socket.send(part)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            self.bytes_sent += sent
            if sent < len(part):
                self._queue.append(memoryview(part)[sent:])
                self.queued_bytes = len(part) - sent
                self._wait_until_writable()
            return
        was_idle = not self._queue
        for part in parts:
            self._queue.append(part)
            self.queued_bytes += len(part)
        if was_idle:
            self._begin()

    def _begin(self) -> None:
        """Sends a queue that was empty before, and registers a writer for the remaining bytes."""
        try:
            is_drained = self._drain()
        except OSError:
            self.close()
            return
        if not is_drained:
            self._wait_until_writable()

    def _on_writable(self) -> None:
        try:
            is_drained = self._drain()
        except OSError:
            self.close()
            return
        if is_drained:
            self._is_writing = False
            self._loop.remove_writer(self._descriptor)
            assert self._receiver is not None
            self._receiver.drained()

    def _wait_until_writable(self) -> None:
        self._is_writing = True
        self._loop.add_writer(self._descriptor, self._on_writable)

    def _drain(self) -> bool:
        """Sends until the queue is empty (True), or until the socket is full or `SENT_BYTES_PER_TURN` is reached (False)."""
        queue = self._queue
        self._turn_end = self.bytes_sent + SENT_BYTES_PER_TURN
        while queue:
            if self.bytes_sent >= self._turn_end:
                return False
            part = queue[0]
            if isinstance(part, Slice) and (self._file_position or len(part) > SMALL_SLICE_BYTES):
                if not self._send_slice(part):
                    return False
            elif not self._send_run():
                return False
        return True

    def _send_run(self) -> bool:
        """Sends the bytes and small slices at the head of the queue as one write. Returns whether all of it was sent."""
        queue = self._queue
        if len(queue) > 1 or isinstance(queue[0], Slice):
            self._join_run()
        part = queue[0]
        assert not isinstance(part, Slice)
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
        """Joins the first part of the queue with the bytes and small slices behind it, up to the limits of one write."""
        queue = self._queue
        run: list[bytes | bytearray | memoryview] = []
        size = 0
        while queue:
            part = queue[0]
            is_slice = isinstance(part, Slice)
            if is_slice and len(part) > SMALL_SLICE_BYTES:
                break
            if run and size + len(part) > (READ_SLICES_BYTES_MAX if is_slice else JOINED_BYTES_MAX):
                break
            run.append(_read_whole(part) if isinstance(part, Slice) else part)
            size += len(part)
            queue.popleft()
        queue.appendleft(b"".join(run) if len(run) > 1 else run[0])

    def _send_slice(self, part: Slice) -> bool:
        """Sends the slice at the head of the queue. Returns whether all of it was sent."""
        left = len(part) - self._file_position
        while left:
            try:
                sent = self._send_piece(part, left)
            except BlockingIOError:
                return False
            if sent == 0:
                part.failed()
                raise OSError(SHORT_SEGMENT)
            self._file_position += sent
            self._count(sent)
            left -= sent
            if left and self.bytes_sent >= self._turn_end:
                return False
        self._file_position = 0
        self._queue.popleft()
        return True

    def _send_piece(self, part: Slice, left: int) -> int:
        descriptor = part.fileno()
        if descriptor < 0:
            return self._socket.send(part.read_piece(self._file_position, SLICE_PIECE_BYTES))
        try:
            return os.sendfile(self._descriptor, descriptor, part.position + self._file_position, left)
        except OSError as error:
            if error.errno not in ERRORS_OF_PEERS:
                part.failed()
            raise

    def _count(self, sent: int) -> None:
        self.queued_bytes -= sent
        self.bytes_sent += sent


def _read_whole(part: Slice) -> bytes:
    try:
        data = part.read_piece(0, len(part))
    except OSError:
        data = b""
    if len(data) < len(part):
        part.failed()
        raise OSError(SHORT_SEGMENT)
    return data


Secure = Callable[[SocketChannel], Channel]
Connected = Callable[[Channel], None]
ConnectFailed = Callable[[str], None]


class SocketListener:
    """`ports.Listener` over one listening socket. If the process has no free descriptors, it stops accepting for a while instead of trying
    again at once.
    """

    def __init__(self, loop: AbstractEventLoop, sock: socket.socket, secure: Secure = lambda channel: channel) -> None:
        """`secure` wraps an accepted channel in TLS."""
        self._loop = loop
        self._socket = sock
        self._secure = secure
        self._connected: Callable[[Channel], None] | None = None
        self.port = int(sock.getsockname()[1])

    def accept(self, connected: Callable[[Channel], None]) -> None:
        self._connected = connected
        self._resume()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._connected is not None
        for _ in range(ACCEPT_BURST):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                log.error("cannot accept connections: %s; trying again in %d ms", error.strerror, ACCEPT_PAUSE_SECONDS * 1000)
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume)
                return
            self._connected(self._secure(connected_channel(self._loop, sock, str(address[0]), int(address[1]))))


class SocketNetwork:
    """`ports.Network` of one event loop."""

    def __init__(self, loop: AbstractEventLoop, *, receive_buffer_bytes: int = -1, send_buffer_bytes: int = -1) -> None:
        """Sizes of the buffers of accepted sockets; -1 lets the system adapt them."""
        self._loop = loop
        self._buffers = ((socket.SO_RCVBUF, receive_buffer_bytes), (socket.SO_SNDBUF, send_buffer_bytes))
        self.secure_of: Callable[[str], Secure] | None = None
        """Returns, for a listener's name, the function that wraps its channels in TLS. Raises `AddressError` if its settings are
        incomplete."""
        self.connect_by_tls: Callable[[SocketChannel, str, Connected, ConnectFailed], object] | None = None
        """Does a TLS handshake with a host, then calls `Connected` or `ConnectFailed`."""
        self._connecting: set[asyncio.Task[None]] = set()

    def listen(self, host: str, port: int, backlog: int, tls: str = "") -> SocketListener:
        secure: Secure = lambda channel: channel  # noqa: E731
        if tls:
            assert self.secure_of is not None, "a listener with TLS and nothing to make it"
            secure = self.secure_of(tls)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if UNSENT_OPTION is not None:
            sock.setsockopt(socket.IPPROTO_TCP, UNSENT_OPTION, UNSENT_BYTES_MAX)
        for option, size in self._buffers:
            if size >= 0:  # accepted sockets inherit it
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        try:
            sock.bind((host or "0.0.0.0", port))
            sock.listen(backlog)
        except OSError as error:
            sock.close()
            raise AddressError(_why_no_listener(host, port, error)) from error
        sock.setblocking(False)
        return SocketListener(self._loop, sock, secure)

    def connect(self, host: str, port: int, connected: Connected, failed: ConnectFailed, *, tls: str = "") -> None:
        if tls:
            by_tls = self.connect_by_tls
            assert by_tls is not None, "a connection by TLS and nothing to make it"
            task = self._loop.create_task(self._connect(host, port, lambda plain: by_tls(plain, host, connected, failed), failed))
        else:
            task = self._loop.create_task(self._connect(host, port, connected, failed))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def host_name(self) -> str:
        return socket.gethostname()

    def close(self) -> None:
        """Cancels the unfinished connection attempts."""
        for task in self._connecting:
            task.cancel()

    async def _connect(self, host: str, port: int, connected: Callable[[SocketChannel], object], failed: ConnectFailed) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                sock = await self._connected_socket(host, port)
        except ConnectionRefusedError:
            failed(REFUSED)
            return
        except OSError as error:  # a timeout is an OSError, too
            failed(error.strerror or str(error) or "no answer")
            return
        except UnicodeError:
            failed(NO_HOST_NAME)
            return
        connected(connected_channel(self._loop, sock, host, port))

    async def _connected_socket(self, host: str, port: int) -> socket.socket:
        """Tries the addresses of the name in order; raises the error of the last one."""
        failure = OSError(f"{host} has no address")
        for family, kind, protocol, _name, address in await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                await self._loop.sock_connect(sock, address)
                return sock
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
        raise failure


def _why_no_listener(host: str, port: int, error: OSError) -> str:
    is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
    hint = "choose another --port" if is_port else "choose an address of this machine, by --host or listeners"
    return f"cannot listen on {f'[{host}]' if ':' in host else host or '0.0.0.0'}:{port}: {error.strerror}; {hint}"


def connected_channel(loop: AbstractEventLoop, sock: socket.socket, host: str, port: int) -> SocketChannel:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketChannel(loop, sock, host, port)
