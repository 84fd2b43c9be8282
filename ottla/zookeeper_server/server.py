"""The server process: it listens, accepts connections, and expires sessions by a timer."""

from __future__ import annotations

import asyncio
import logging

from ottla.adapters.durable_tree import DurableTree
from ottla.zookeeper_server.connection import Connection
from ottla.zookeeper_server.sessions import TICK_MS, Sessions

log = logging.getLogger("ottla.zookeeper_server")

CONNECTIONS_MAX = 100


class ZooKeeperServer:
    """Serves the tree of one file on one address."""

    def __init__(self, tree: DurableTree, digest: str | None = None) -> None:
        """`digest` is `user:password`, which each connection must send; None admits everybody."""
        self.tree = tree
        self.sessions = Sessions(tree)
        self._digest = None if digest is None else digest.encode()
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._ticks: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens, and returns the port. Raises `OSError` if the address cannot be used."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, host, port)
        self._ticks = loop.create_task(self._pass_ticks())
        port = self._listener.sockets[0].getsockname()[1]
        log.info("serving %s on %s:%d", self.tree.path, host, port)
        return int(port)

    def stop(self) -> None:
        """Closes all connections and the file. Sessions and their ephemeral nodes are not stored in the file, so they end too."""
        if self._listener is not None:
            self._listener.close()
        if self._ticks is not None:
            self._ticks.cancel()
        for connection in list(self._connections):
            connection.abort()
        self.tree.close()

    def note_lost(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def _accept(self) -> Connection:
        connection = Connection(
            self.tree, self.sessions, self._digest, self.note_lost, is_refused=len(self._connections) >= CONNECTIONS_MAX
        )
        self._connections.add(connection)
        return connection

    async def _pass_ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            for session in self.sessions.pass_tick():
                log.warning("session 0x%x has expired: its client was silent for %d ms", session.session_id, session.timeout_ms)
