"""The sessions of the server. A session outlives its connections. It ends when its client closes it, or sends nothing for the session
timeout.

The watches of a session belong to its connection: clients read and watch again after a reconnection, as with ZooKeeper.

The timeout is counted in ticks of the server's own timer. While the process is paused no tick passes, so a pause of the server does not
expire sessions.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Protocol

from ottla.adapters.durable_tree import DurableTree
from ottla.base.ports import Watch, WatchEvent
from ottla.zookeeper_server.messages import PASSWORD_BYTES

TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 500, 120_000
"""Bounds of session timeouts. A client that asks for less or more gets the nearest bound."""

TICK_MS = 100


class Receiver(Protocol):
    """The connection of a session."""

    def send_event(self, event: WatchEvent, path: str) -> None: ...

    def abort(self) -> None: ...


class Session:
    """One client's session, with its connection if it has one."""

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.session_id = session_id
        self.password = secrets.token_bytes(PASSWORD_BYTES)
        self.timeout_ms = min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
        self.silent_ms = 0
        self._connection: Receiver | None = None
        self._watched: set[tuple[str, bool]] = set()

    def watch(self, path: str, *, is_for_children: bool) -> Watch | None:
        """Returns the watch to set; None if the connection has this watch already."""
        key = (path, is_for_children)
        if key in self._watched:
            return None
        self._watched.add(key)

        def notify(event: WatchEvent) -> None:
            self._watched.discard(key)
            assert self._connection is not None, "a session without a connection has no watches"
            self._connection.send_event(event, path)

        return notify

    def replace_connection(self, connection: Receiver | None) -> None:
        """Closes the connection that the session had, and forgets its watches."""
        before, self._connection = self._connection, connection
        self._watched.clear()
        self.silent_ms = 0
        if before is not None:
            before.abort()

    def is_on(self, connection: Receiver) -> bool:
        return self._connection is connection


class Sessions:
    """The open sessions by id."""

    def __init__(self, tree: DurableTree) -> None:
        self._tree = tree
        self._open: dict[int, Session] = {}

    def open(self, timeout_ms: int) -> Session:
        session = Session(self._tree.new_session_id(), timeout_ms)
        self._open[session.session_id] = session
        return session

    def find(self, session_id: int, password: bytes) -> Session | None:
        """Returns the open session; None if it has ended or the password is wrong."""
        session = self._open.get(session_id)
        return session if session is not None and hmac.compare_digest(session.password, password) else None

    def connect(self, session: Session, connection: Receiver | None) -> None:
        """Makes `connection` the session's only connection; None records that the connection was lost."""
        self._tree.nodes.take_watches(session.session_id)
        session.replace_connection(connection)

    def end(self, session: Session) -> None:
        """Ends the session. Its ephemeral nodes are deleted."""
        if self._open.pop(session.session_id, None) is not None:
            self._tree.end_session(session.session_id)

    def pass_tick(self) -> list[Session]:
        """Ends the sessions that were silent for their timeout, and returns them."""
        for session in self._open.values():
            session.silent_ms += TICK_MS
        expired = [session for session in self._open.values() if session.silent_ms > session.timeout_ms]
        for session in expired:
            self.end(session)
            session.replace_connection(None)
        return expired
