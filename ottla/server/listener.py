"""Listening sockets: who may connect, and the connections that are open.

Each listener accepts on the loop. A connection over `max.connections`, over what the process has descriptors for, or over the limit of
its address is closed at once. When the process runs out of file descriptors all the same, accepting pauses for a moment instead of
spinning. A sweep closes connections that have been silent for too long.

Memory is bounded by `ottla.memory.max.bytes`: half of it is for requests that are being received (`queued.max.request.bytes`, if that is
less), and half is shared by the answers and waiting requests of all connections, so that each may keep less as they become many.
"""

from __future__ import annotations

import errno
import logging
import socket
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from ottla.base.config import BrokerConfig, Endpoint
from ottla.base.errors import StorageError
from ottla.base.ports import Timers
from ottla.base.settings.setting import INT_MAX
from ottla.requests.context import ConnectionInfo
from ottla.server.connection import Connection, ConnectionLimits, Executor, SocketShell
from ottla.server.receive_buffer import ReceiveBuffers

log = logging.getLogger("ottla.network")

ACCEPT_BURST = 64
"""Connections taken in one turn of the loop, so that a storm does not starve the others."""
ACCEPT_PAUSE_MS = 100
QUEUED_BYTES_LEAST = 1 << 16
"""What every connection may keep, however many there are."""
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listeners:
    """All listening sockets and all client connections of one broker."""

    def __init__(
        self, loop: AbstractEventLoop, timers: Timers, config: BrokerConfig, executor: Executor,
        on_storage_error: Callable[[StorageError], None], on_broken_invariant: Callable[[BaseException], None],
        *, connections_max: int = INT_MAX,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._timers = timers
        self._config = config
        self._executor = executor
        self._on_storage_error = on_storage_error
        self._on_broken_invariant = on_broken_invariant
        self._connections_max = connections_max
        self._buffers = ReceiveBuffers(request_bytes_max(config))
        self._limits = ConnectionLimits(
            frame_bytes_max=config.socket_request_max_bytes,
            in_flight_max=config.ottla_connection_requests_max,
            queued_bytes_max=config.ottla_connection_memory_max_bytes,
        )
        self._sockets: list[tuple[Endpoint, socket.socket]] = []
        self._per_host: Counter[str] = Counter()
        self._count = 0
        self.shells: set[SocketShell] = set()
        self.on_arrival: Callable[[str, socket.socket, str], None] | None = None
        """Told of each connection: listener, socket, the client's host (`server/arrivals.py`)."""

    def bind(self, endpoint: Endpoint) -> Endpoint:
        """Binds without accepting yet; returns the endpoint with the port that was given. Raises `AddressError`."""
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((endpoint.host or "0.0.0.0", endpoint.port))
            sock.listen(max(self._config.socket_listen_backlog_size, 128))
        except OSError as error:
            sock.close()
            where = f"{endpoint.host or '0.0.0.0'}:{endpoint.port}"
            raise AddressError(f"cannot listen on {where}: {error.strerror}; choose another --port") from error
        sock.setblocking(False)
        bound = endpoint._replace(port=sock.getsockname()[1])
        self._sockets.append((bound, sock))
        return bound

    def start(self) -> None:
        for endpoint, sock in self._sockets:
            self._accept_on(endpoint, sock)

    def stop_accepting(self) -> None:
        for _endpoint, sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()

    def close_all(self) -> None:
        for shell in list(self.shells):
            shell.close()

    def pause_all(self) -> None:
        """Reads no further requests; what is under way may finish."""
        for shell in list(self.shells):
            shell.pause_reading()

    def are_idle(self) -> bool:
        return all(shell.connection.is_idle() for shell in self.shells)

    def sweep(self, ticks_max: int) -> None:
        """Closes connections that have been silent for `ticks_max` calls of this: nothing came, and nothing that is due was taken."""
        for shell in list(self.shells):
            sender = shell.connection.sender
            if sender.bytes_sent != shell.bytes_taken:
                shell.bytes_taken = sender.bytes_sent
                shell.idle_ticks = 0
            shell.idle_ticks += 1
            if shell.idle_ticks > ticks_max and (sender.queued_bytes > 0 or shell.connection.is_idle()):
                shell.close()

    def relieve(self) -> None:
        """Ends a standstill of unfinished requests; called every tick."""
        self._buffers.relieve()

    def _accept_on(self, endpoint: Endpoint, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._loop.add_reader(sock.fileno(), self._accept, endpoint, sock)

    def _accept(self, endpoint: Endpoint, listening: socket.socket) -> None:
        for _ in range(ACCEPT_BURST):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                log.error("cannot accept connections: %s; trying again in %d ms", error.strerror, ACCEPT_PAUSE_MS)
                self._loop.remove_reader(listening.fileno())
                self._timers.call_later(ACCEPT_PAUSE_MS, lambda: self._accept_on(endpoint, listening))
                return
            self._admit(endpoint, sock, str(address[0]), int(address[1]))

    def _admit(self, endpoint: Endpoint, sock: socket.socket, host: str, port: int) -> None:
        config = self._config
        if self._count >= min(config.max_connections, self._connections_max) or self._per_host.get(host, 0) >= self._host_max(host):
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._count += 1
        self._per_host[host] += 1
        self._share_memory()
        if self.on_arrival is not None:
            self.on_arrival(endpoint.name, sock, host)
        info = ConnectionInfo(identity=f"{host}:{port}", host=host, listener=endpoint.name)
        shell = SocketShell(
            self._loop, sock, lambda shell: Connection(self._executor, self._buffers, info, self._limits, shell), self._closed,
            self._on_storage_error, self._on_broken_invariant,
        )
        self.shells.add(shell)

    def _closed(self, shell: SocketShell) -> None:
        self.shells.discard(shell)
        self._count -= 1
        host = shell.connection.info.host
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        self._share_memory()

    def _host_max(self, host: str) -> int:
        overrides = self._config.max_connections_per_ip_overrides
        return per_host(overrides).get(host, self._config.max_connections_per_ip) if overrides else self._config.max_connections_per_ip

    def _share_memory(self) -> None:
        config = self._config
        share = max(config.ottla_memory_max_bytes // 2 // max(self._count, 1), QUEUED_BYTES_LEAST)
        self._limits.queued_bytes_max = min(share, config.ottla_connection_memory_max_bytes)


def request_bytes_max(config: BrokerConfig) -> int:
    """Bytes of large requests that are being received."""
    half = config.ottla_memory_max_bytes // 2
    return min(half, config.queued_max_request_bytes) if config.queued_max_request_bytes > 0 else half


@lru_cache(maxsize=1)
def per_host(overrides: str) -> dict[str, int]:
    """`host:number` separated by commas; an IPv6 address may stand in brackets."""
    found = {}
    for item in filter(None, map(str.strip, overrides.split(","))):
        host, _, number = item.rpartition(":")
        if host and number.strip().isdigit():
            found[host.strip("[] ")] = int(number)
    return found


class AddressError(Exception):
    """An address that cannot be listened on: one line for the command line."""
