"""The listening sockets of the HTTP port. A connection is counted before its TLS handshake.

`asyncio.start_server` announces a connection only after its handshake, so the number of half-open connections would not be bounded.
Upgrading a plain stream to TLS loses bytes that the client has already sent, on uvloop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger("ottla.http")

BACKLOG = 100
ACCEPT_PAUSE_SECONDS = 0.1

Serve = Callable[[socket.socket], Coroutine[Any, Any, None]]


class HttpListener:
    """Runs `serve` in a task for each connection."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Binds every address of the host at the same port. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.port = port
        try:
            for family, _kind, _protocol, _name, address in dict.fromkeys(found):
                self._bind(family, str(address[0]))
        except OSError:
            await self.close()
            raise
        self._accepting = [loop.create_task(self._accept(sock)) for sock in self._sockets]

    def _bind(self, family: int, host: str) -> None:
        sock = socket.socket(family, socket.SOCK_STREAM)
        self._sockets.append(sock)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, self.port))
        sock.listen(BACKLOG)
        self.port = int(sock.getsockname()[1])

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _address = await loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # no descriptors are left
                log.error("cannot accept connections on the HTTP port: %s", error.strerror)
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            task = loop.create_task(self._serve(sock))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for sock in self._sockets:
            sock.close()
        self._sockets, self._accepting = [], []


class PeerProtocol(asyncio.StreamReaderProtocol):
    """A peer that resets its connection is treated like one that closes it. The stream would keep the error for a later caller. No such
    caller exists here, and an unread error may be logged with a traceback."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None)


async def streams(
    sock: socket.socket, tls: ssl.SSLContext | None, *, limit: int, handshake_seconds: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns the streams of an accepted connection, with TLS after its handshake. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit)
    protocol = PeerProtocol(reader)
    seconds = handshake_seconds if tls is not None else None
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=seconds)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
