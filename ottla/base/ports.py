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


class StoreResult(IntEnum):
    """How a write to the metadata store ended. `UNKNOWN`: the connection was lost, it may or may not have happened."""

    OK = 0
    NO_NODE = 1
    NODE_EXISTS = 2
    BAD_VERSION = 3
    NOT_EMPTY = 4
    SESSION_EXPIRED = 5
    UNKNOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's bytes and the versions that guard its next change (`czxid` is the creating transaction, a broker's epoch)."""

    data: bytes
    version: int
    czxid: int
    ephemeral_owner: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


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


class MetadataStore(Protocol):
    """A tree of versioned nodes with ephemerals and one-shot watches: ZooKeeper, or the journal of a single broker.

    Every answer comes by callback on the loop (the local store calls back before it returns). `multi` is all or nothing; its callback gets
    the result of the first operation that failed, and its index, or `OK` and -1.
    """

    def get(self, path: str, done: Callable[[Node | None], None], *, watch: Callable[[], None] | None = None) -> None: ...

    def children(self, path: str, done: Callable[[list[str]], None], *, watch: Callable[[], None] | None = None) -> None: ...

    def multi(self, operations: Sequence[Operation], done: Callable[[StoreResult, int], None]) -> None: ...

    def session_id(self) -> int: ...

    def close(self) -> None: ...
