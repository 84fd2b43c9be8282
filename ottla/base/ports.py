"""The doors to the world: time, timers, disk, randomness and the metadata store, as the core sees them.

Nothing below `adapters` imports time, os, socket, random or asyncio; it is handed one of these instead. The production adapters are thin,
and the simulator replaces all of them, so a seed replays a run. Units: milliseconds and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Clock(Protocol):
    """Two clocks: `monotonic_ms` for every interval and deadline, `wall_ms` only for timestamps and retention."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Runs a function later, on the one loop that owns all state."""

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> TimerHandle: ...

    def call_soon(self, function: Callable[[], object]) -> None: ...


class Random(Protocol):
    def token_bytes(self, size: int) -> bytes: ...

    def uniform(self, low: float, high: float) -> float: ...

    def randrange(self, stop: int) -> int: ...


class File(Protocol):
    """An open file. Every method raises `StorageError` when the disk does."""

    path: str

    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 where there is none (a disk in memory)."""

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Writes all of `data` at `position`, or raises."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fsync; may be called from a thread. A failure is never retried as success."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings. Every method raises `StorageError` when the disk does."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing; a missing file is created if `create`, else `FileNotFoundError`."""

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def makedirs(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Removes a file; a missing one is no error."""

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds `path`."""


MULTI_BYTES_MAX = 512 * 1024
"""The largest multi that a store takes, and the largest node: half of what ZooKeeper refuses by default. Callers split larger writes."""

OPERATION_OVERHEAD_BYTES = 64
"""What ZooKeeper's frame adds to the path and the data of one operation, rounded up."""


class StoreResult(IntEnum):
    """How a read or a write of the metadata store ended.

    `CONNECTION_LOST`: there was no connection, so a read has no value and a write was not sent. `UNKNOWN`: a write was sent and its answer
    was lost; it has happened, or has not, or may still happen before the next write of the same session. `DISK_FAILED`: the embedded
    store cannot write; nothing has changed.
    """

    OK = 0
    NO_NODE = 1
    NODE_EXISTS = 2
    BAD_VERSION = 3
    NOT_EMPTY = 4
    SESSION_EXPIRED = 5
    UNKNOWN = 6
    CONNECTION_LOST = 7
    EPHEMERAL_PARENT = 8
    TOO_LARGE = 9
    DISK_FAILED = 10


class SessionEvent(IntEnum):
    """Changes of a store's session. `EXPIRED` ends it and removes its ephemeral nodes; `NEW_SESSION`: connected again, under another id."""

    CONNECTED = 0
    SUSPENDED = 1
    EXPIRED = 2
    NEW_SESSION = 3


class WatchEvent(IntEnum):
    """Why a watch was called. `LOST`: the store watches no longer (the connection or the session ended); read again when connected."""

    CREATED = 0
    CHANGED = 1
    DELETED = 2
    CHILDREN = 3
    LOST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's bytes and the versions that guard its next change (`czxid` is the creating transaction, a broker's epoch)."""

    data: bytes
    version: int
    czxid: int
    ephemeral_owner: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """`is_sequential`: the store appends a number of ten digits to the path, larger than all before it under the same parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    is_sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Operation = Create | Set | Delete | Check


def operation_bytes(operation: Operation) -> int:
    """What the operation takes of `MULTI_BYTES_MAX`."""
    data = operation.data if isinstance(operation, Create | Set) else b""
    return OPERATION_OVERHEAD_BYTES + len(operation.path) + len(data)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a multi ended: on failure with the index of the operation that failed, if one did; else with the paths of the created nodes."""

    result: StoreResult
    index: int = -1
    created: tuple[str, ...] = ()


Watch = Callable[[WatchEvent], object]
"""Called once, on the loop; to go on watching, read again."""


class MetadataStore(Protocol):
    """One session on a tree of versioned nodes: ZooKeeper, or the journal of a single broker.

    Every answer comes by one callback on the loop (the embedded store calls back before it returns), in the order of the requests; a watch
    is called before the answer to a later read that shows the change. Every request can fail. A watch is left by a read that succeeds:
    `get` and `children` watch a node that is there, `exists` also one that is not.
    """

    def get(self, path: str, done: Callable[[StoreResult, Node | None], object], *, watch: Watch | None = None) -> None:
        """OK with the node, or NO_NODE; watches its data and its deletion."""

    def exists(self, path: str, done: Callable[[StoreResult], object], *, watch: Watch | None = None) -> None:
        """OK or NO_NODE; watches creation, data and deletion."""

    def children(self, path: str, done: Callable[[StoreResult, list[str]], object], *, watch: Watch | None = None) -> None:
        """OK with the names, sorted, or NO_NODE; watches children that come and go, and the deletion of the node."""

    def multi(self, operations: Sequence[Operation], done: Callable[[Outcome], object]) -> None:
        """All or nothing. One that checks and changes nothing is ordered with the writes all the same."""

    def listen(self, listener: Callable[[SessionEvent], object]) -> None:
        """Calls `listener` at every change of the session from now on."""

    def is_connected(self) -> bool: ...

    def session_id(self) -> int:
        """The owner of the ephemeral nodes that this session creates."""

    def close(self) -> None:
        """Ends the session and removes its ephemeral nodes; every later request answers SESSION_EXPIRED."""
