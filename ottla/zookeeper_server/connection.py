"""Serves one connection of a client: executes each request and writes its answer.

A request is executed when its frame is complete, and its answer is written before the next one is executed. Answers are therefore in the
order of the requests, a client gets the event of a watch before the answer to a later read, and a write is on the disk before it is
answered.

Not served, with the error UNIMPLEMENTED: changes of ACLs, containers, persistent watches, watches that a client sets again after a
reconnection (SetWatches), reconfiguration and SASL. The ACL of a new node is ignored: every admitted client may do everything. If the
server has a digest, a connection must send it (scheme `digest`) before its other requests.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterator
from typing import cast

from ottla.adapters.durable_tree import DurableTree
from ottla.base.ports import Create, Operation, Outcome, StoreNode, StoreResult, WatchEvent
from ottla.zookeeper_server import messages
from ottla.zookeeper_server.messages import CODES, Code, Malformed, Op, Reader, Refused
from ottla.zookeeper_server.sessions import Session, Sessions

log = logging.getLogger("ottla.zookeeper_server")

UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of answers and events that a connection may leave unread before the server closes it."""

LENGTH_BYTES = 4
WORDS = {b"ruok": b"imok", b"isro": b"rw"}
"""The four-letter words that are answered."""

NO_NODE = StoreNode(data=b"", version=0, czxid=0)

CHILD_READS = frozenset({Op.GET_CHILDREN, Op.GET_CHILDREN_2})
READS = CHILD_READS | {Op.EXISTS, Op.GET_DATA}
WRITES = frozenset({Op.CREATE, Op.CREATE_2, Op.DELETE, Op.SET_DATA})


class Connection(asyncio.Protocol):
    """One connection. Its first request opens a session, or continues an earlier one."""

    def __init__(
        self, tree: DurableTree, sessions: Sessions, digest: bytes | None, on_lost: Callable[[Connection], object], *, is_refused: bool
    ) -> None:
        self._tree = tree
        self._sessions = sessions
        self._digest = digest
        self._on_lost = on_lost
        self._is_refused = is_refused
        self._is_admitted = digest is None
        self._received = bytearray()
        self._session: Session | None = None
        self._transport: asyncio.Transport

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have no common base class
        if self._is_refused:
            log.warning("a connection is refused: too many are open")
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while not self._transport.is_closing() and (frame := self._next_frame()) is not None:
                self._execute(frame)
        except Malformed as error:
            log.warning("a connection is closed: %s", error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost(self)
        if self._session is not None and self._session.is_on(self):
            self._sessions.connect(self._session, None)

    def abort(self) -> None:
        self._transport.abort()

    def send_event(self, event: WatchEvent, path: str) -> None:
        self._send(messages.event(event, path))

    # Frames

    def _next_frame(self) -> bytes | None:
        """Takes the next complete frame; None until more bytes arrive. Answers a four-letter word, which ends the connection."""
        first = bytes(self._received[:LENGTH_BYTES])
        if len(first) < LENGTH_BYTES:
            return None
        if self._session is None and first in WORDS:
            self._transport.write(WORDS[first])
            self._transport.close()
            return None
        length = int.from_bytes(first, "big", signed=True)
        if not 0 < length <= messages.FRAME_BYTES_MAX:
            raise Malformed(f"a frame of {length} bytes")
        end = LENGTH_BYTES + length
        if len(self._received) < end:
            return None
        frame = bytes(self._received[LENGTH_BYTES:end])
        del self._received[:end]
        return frame

    def _send(self, frame: bytes) -> None:
        self._transport.write(frame)
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            log.warning("a connection is closed: it does not read its answers")
            self.abort()

    def _execute(self, frame: bytes) -> None:
        session = self._session
        if session is None:
            self._open_session(messages.read_connect(frame))
            return
        session.silent_ms = 0
        reader = Reader(frame)
        xid, kind = messages.read_header(reader)
        code, body = Code.OK, b""
        try:
            body = self._answer(session, reader, kind)
        except Refused as refusal:
            code = refusal.code
        self._send(messages.answer(xid, self._tree.last_change, code, body))
        if kind == Op.CLOSE or code is Code.AUTH_FAILED:
            self._transport.close()

    def _open_session(self, request: messages.Connect) -> None:
        """Opens a session, or takes over an open one from its earlier connection. A session that has ended is answered with timeout 0."""
        sessions = self._sessions
        session = sessions.find(request.session_id, request.password) if request.session_id else sessions.open(request.timeout_ms)
        if session is None:
            self._send(messages.connected(request, session_id=0, password=bytes(messages.PASSWORD_BYTES), timeout_ms=0))
            self._transport.close()
            return
        sessions.connect(session, self)
        self._session = session
        self._send(messages.connected(request, session_id=session.session_id, password=session.password, timeout_ms=session.timeout_ms))

    # Requests

    def _answer(self, session: Session, reader: Reader, kind: int) -> bytes:
        """Executes a request and returns the body of its answer. Raises `Refused`."""
        if kind == Op.PING:
            return b""
        if kind == Op.CLOSE:
            self._sessions.end(session)
            return b""
        if kind == Op.AUTH:
            return self._admit(reader)
        if not self._is_admitted:
            raise Refused(Code.NO_AUTH)
        if kind in READS:
            return self._read(session, reader, kind)
        if kind in WRITES:
            return self._write(session, reader, kind)
        if kind == Op.MULTI:
            return self._multi(session, reader)
        if kind == Op.SYNC:
            return messages.text(reader.text())
        if kind == Op.GET_ACL:
            path = messages.checked_path(reader.text())
            return messages.open_acl() + self._stat(path)
        raise Refused(Code.UNIMPLEMENTED)

    def _admit(self, reader: Reader) -> bytes:
        _kind, scheme, digest = reader.integer(), reader.text(), reader.buffer()
        if self._digest is not None and not (scheme == "digest" and hmac.compare_digest(digest, self._digest)):
            log.warning("a connection is closed: its digest is wrong")
            raise Refused(Code.AUTH_FAILED)
        self._is_admitted = True
        return b""

    def _read(self, session: Session, reader: Reader, kind: int) -> bytes:
        path, is_watching = messages.checked_path(reader.text()), reader.flag()
        nodes, is_for_children = self._tree.nodes, kind in CHILD_READS
        if is_watching and (kind == Op.EXISTS or nodes.get(path) is not None):
            watch = session.watch(path, is_for_children=is_for_children)
            if watch is not None:
                (nodes.watch_children if is_for_children else nodes.watch_node)(path, session.session_id, watch)
        node = self._node(path)
        if is_for_children:
            names = messages.names(nodes.children(path))
            return names if kind == Op.GET_CHILDREN else names + self._stat(path)
        return self._stat(path) if kind == Op.EXISTS else messages.buffer(node.data) + self._stat(path)

    def _node(self, path: str) -> StoreNode:
        """Raises `Refused` if there is no such node."""
        node = self._tree.nodes.get(path)
        if node is None:
            raise Refused(Code.NO_NODE)
        return node

    def _stat(self, path: str) -> bytes:
        return messages.stat(self._node(path), self._tree.nodes.child_count(path))

    def _write(self, session: Session, reader: Reader, kind: int) -> bytes:
        operation = messages.read_operation(reader, kind)
        outcome = self._change(session, [operation])
        if outcome.result is not StoreResult.OK:
            raise Refused(CODES[outcome.result])
        return self._done(kind, operation, iter(outcome.created))

    def _multi(self, session: Session, reader: Reader) -> bytes:
        """Executes all operations or none. If one fails, the operations before it are answered with OK, and the operations after it with
        RUNTIME_INCONSISTENCY, as in ZooKeeper.
        """
        asked = messages.read_multi(reader)
        outcome = self._change(session, [operation for _, operation in asked])
        if outcome.result is StoreResult.OK:
            created = iter(outcome.created)
            parts = [messages.multi_part(kind, self._done(kind, operation, created)) for kind, operation in asked]
        else:
            failed = max(outcome.index, 0)
            codes = [Code.OK] * failed + [CODES[outcome.result]] + [Code.RUNTIME_INCONSISTENCY] * (len(asked) - failed - 1)
            parts = [messages.multi_failure(code) for code in codes]
        return b"".join([*parts, messages.MULTI_END])

    def _change(self, session: Session, operations: list[Operation]) -> Outcome:
        return self._tree.change(session.session_id, operations)

    def _done(self, kind: int, operation: Operation, created: Iterator[str]) -> bytes:
        """Returns the body for an operation that was executed. `created` are the paths of the nodes that the change created. A Stat
        describes the node after the whole change; it is empty if a later operation of the change deleted the node.
        """
        path = next(created) if isinstance(operation, Create) else operation.path
        stat = b""
        if kind in (Op.CREATE_2, Op.SET_DATA):
            stat = messages.stat(self._tree.nodes.get(path) or NO_NODE, self._tree.nodes.child_count(path))
        return messages.text(path) + stat if isinstance(operation, Create) else stat
