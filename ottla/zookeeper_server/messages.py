"""Reads the requests and writes the answers of ZooKeeper's protocol (jute, as in ZooKeeper 3.4 to 3.9), as far as this server supports
them.

Integers are big-endian. A text and a buffer begin with their length in bytes (int); -1 is null. A vector begins with the number of its
elements. Each message is a frame: its length (int), then its bytes. The readers raise `Malformed` for bytes that are not the protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from ottla.base.immutable import immutable
from ottla.base.ports import Check, Create, Delete, Operation, Set, StoreNode, StoreResult, WatchEvent

FRAME_BYTES_MAX = 1024 * 1024
"""ZooKeeper's default of `jute.maxbuffer`."""

PASSWORD_BYTES = 16
NOTIFICATION_XID = -1
CONNECTED_STATE = 3

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_HEADER = struct.Struct(">ii")
_ANSWER = struct.Struct(">iqi")
_CONNECT = struct.Struct(">iqiq")
_CONNECTED = struct.Struct(">iiq")
_STAT = struct.Struct(">qqqqiiiqiiq")
_MULTI = struct.Struct(">i?i")


class Op(IntEnum):
    """The types of requests that are served, by ZooKeeper's numbers."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    CREATE_2 = 15
    AUTH = 100
    CLOSE = -11


class Code(IntEnum):
    """ZooKeeper's error codes."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    AUTH_FAILED = -115


class Malformed(Exception):
    """The bytes are not a request of ZooKeeper's protocol."""


class Refused(Exception):
    """The request is invalid or not supported by this server. `code` is the error in the answer."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


CODES = {
    StoreResult.OK: Code.OK,
    StoreResult.NO_NODE: Code.NO_NODE,
    StoreResult.NODE_EXISTS: Code.NODE_EXISTS,
    StoreResult.BAD_VERSION: Code.BAD_VERSION,
    StoreResult.NOT_EMPTY: Code.NOT_EMPTY,
    StoreResult.EPHEMERAL_PARENT: Code.NO_CHILDREN_FOR_EPHEMERALS,
    StoreResult.DISK_FAILED: Code.SYSTEM_ERROR,
}

EVENTS = {WatchEvent.CREATED: 1, WatchEvent.DELETED: 2, WatchEvent.CHANGED: 3, WatchEvent.CHILDREN: 4}

EPHEMERAL, SEQUENTIAL = 1, 2


class Reader:
    """Reads the fields of one frame in order."""

    __slots__ = ("_at", "_bytes")

    def __init__(self, frame: bytes) -> None:
        self._bytes = frame
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._bytes)

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        try:
            found = form.unpack_from(self._bytes, self._at)
        except struct.error:
            raise Malformed("a request ends too early") from None
        self._at += form.size
        return found

    def integer(self) -> int:
        return self.unpack(_INT)[0]

    def flag(self) -> bool:
        return self._take(1) != b"\0"

    def buffer(self) -> bytes:
        """Returns an empty buffer for null."""
        length = self.integer()
        return b"" if length == -1 else self._take(length)

    def text(self) -> str:
        try:
            return self.buffer().decode()
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def _take(self, length: int) -> bytes:
        taken = self._bytes[self._at : self._at + length]
        if length < 0 or len(taken) != length:
            raise Malformed("a request ends too early")
        self._at += length
        return taken


@immutable
class Connect:
    """The first request of a connection. `session_id` is 0 for a new session."""

    timeout_ms: int
    session_id: int
    password: bytes
    has_read_only: bool
    """Whether the client is of ZooKeeper 3.4 or newer, which send and expect one byte more."""


def read_connect(frame: bytes) -> Connect:
    reader = Reader(frame)
    _version, _last_zxid, timeout_ms, session_id = reader.unpack(_CONNECT)
    return Connect(timeout_ms, session_id, reader.buffer(), not reader.is_at_end)


def read_header(reader: Reader) -> tuple[int, int]:
    """Returns the request's number (xid) and its type."""
    xid, kind = reader.unpack(_HEADER)
    return xid, kind


def read_operation(reader: Reader, kind: int) -> Operation:
    """Reads a change, which is a request or a part of a multi. ACLs are skipped."""
    path = reader.text()
    if kind in (Op.CREATE, Op.CREATE_2):
        data = reader.buffer()
        for _ in range(reader.integer()):
            read_acl_entry(reader)
        flags = reader.integer()
        if flags & ~(EPHEMERAL | SEQUENTIAL):
            raise Refused(Code.UNIMPLEMENTED)  # containers and nodes with a time to live
        is_sequential = bool(flags & SEQUENTIAL)
        return Create(checked_path(path, is_prefix=is_sequential), data, bool(flags & EPHEMERAL), is_sequential)
    path = checked_path(path)
    if kind == Op.SET_DATA:
        return Set(path, reader.buffer(), reader.integer())
    if kind == Op.DELETE:
        return Delete(path, reader.integer())
    if kind == Op.CHECK:
        return Check(path, reader.integer())
    raise Malformed(f"a multi has no operation of type {kind}")


def read_acl_entry(reader: Reader) -> tuple[int, str, str]:
    """Returns permissions, scheme and identity."""
    return reader.integer(), reader.text(), reader.text()


def read_multi(reader: Reader) -> list[tuple[int, Operation]]:
    """Returns the operations of a multi with their types."""
    found: list[tuple[int, Operation]] = []
    while True:
        kind, is_done, _code = reader.unpack(_MULTI)
        if is_done:
            return found
        found.append((kind, read_operation(reader, kind)))


def checked_path(path: str, *, is_prefix: bool = False) -> str:
    """Checks a path and returns it in the store's form, where the root is empty. With `is_prefix` the last name may be empty, because the
    server appends a number to it. Raises `Refused` for a path that ZooKeeper refuses.
    """
    if path == "/" and not is_prefix:
        return ""
    first, *others = path.split("/")
    checked = others[:-1] if is_prefix else others
    if first or not others or "\0" in path or any(name in ("", ".", "..") for name in checked):
        raise Refused(Code.BAD_ARGUMENTS)
    return path


# Answers


def frame_of(*parts: bytes) -> bytes:
    return _INT.pack(sum(map(len, parts))) + b"".join(parts)


def connected(request: Connect, *, session_id: int, password: bytes, timeout_ms: int) -> bytes:
    """Returns the answer to the first request. A `timeout_ms` of 0 means that the session has expired."""
    read_only = b"\0" if request.has_read_only else b""
    return frame_of(_CONNECTED.pack(0, timeout_ms, session_id), buffer(password), read_only)


def answer(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    return frame_of(_ANSWER.pack(xid, zxid, code), body)


def event(kind: WatchEvent, path: str) -> bytes:
    body = _HEADER.pack(EVENTS[kind], CONNECTED_STATE) + text(path or "/")
    return answer(NOTIFICATION_XID, -1, Code.OK, body)


def buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def text(value: str) -> bytes:
    return buffer(value.encode())


def names(values: Sequence[str]) -> bytes:
    return _INT.pack(len(values)) + b"".join(map(text, values))


def open_acl() -> bytes:
    """Returns the ACL of every node: anybody may do everything."""
    return _INT.pack(1) + _INT.pack(31) + text("world") + text("anyone")


def stat(node: StoreNode, child_count: int) -> bytes:
    """Returns the node's Stat. The store does not keep times, the number of changes of children, or the number of the last change. Times
    and `cversion` are therefore 0, and `mzxid` and `pzxid` have the number of the creation.
    """
    created = node.czxid
    return _STAT.pack(created, created, 0, 0, node.version, 0, 0, node.ephemeral_owner, len(node.data), child_count, created)


def multi_part(kind: int, body: bytes) -> bytes:
    return _MULTI.pack(kind, False, Code.OK) + body


def multi_failure(code: int) -> bytes:
    return _MULTI.pack(-1, False, code) + _INT.pack(code)


MULTI_END = _MULTI.pack(-1, True, -1)
