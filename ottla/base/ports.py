"""The ports of a broker: the interfaces through which it uses clock, timers, randomness, disk, threads, network, other brokers and the
metadata store.

Core, handlers and `server/node.py` import no time, os, socket, random, threading or asyncio; the ports are passed to them instead. The
production adapters are thin. The simulation replaces all of them, so a seed reproduces a run. Units: milliseconds and bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from ottla.base.errors import OttlaError
from ottla.base.immutable import immutable

Result = TypeVar("Result")


class Clock(Protocol):
    """`monotonic_ms` is for intervals and deadlines. `wall_ms` is only for timestamps, and for retention and expiry by stored timestamps.
    `nanoseconds` is only for metrics and for measuring how long work has blocked the loop."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...

    def nanoseconds(self) -> int: ...


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Runs a function later, on the event loop."""

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> TimerHandle: ...

    def call_soon(self, function: Callable[[], object]) -> None: ...


class Random(Protocol):
    def token_bytes(self, size: int) -> bytes: ...

    def uniform(self, low: float, high: float) -> float: ...

    def randrange(self, stop: int) -> int: ...


class File(Protocol):
    """An open file. Every method may raise `StorageError`."""

    path: str

    def fileno(self) -> int:
        """Returns the descriptor for sendfile; -1 if there is none (a disk in memory)."""

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Returns `length` bytes from `position` on, fewer only at the end of the file."""

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fills `buffer` from `position` on and returns the number of bytes; fewer than its length only at the end of the file."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Writes all of `data` at `position`, or raises."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Syncs the file (fsync); may be called in a thread. After a failure, no later sync reports success."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings. Every method may raise `StorageError`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens a file for reading and writing. Creates a missing file if `create`, else raises `FileNotFoundError`."""

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""

    def makedirs(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Removes a file. Does nothing if it is missing."""

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_file_systems(self, paths: Iterable[str]) -> bool:
        """Syncs the file systems that hold these paths. Returns False if failed writes can remain unreported (Linux before 5.8); then each
        file must be synced too."""

    def map_cells(self, path: str) -> memoryview:
        """Maps a file into memory, as 64-bit numbers that can be changed. A change survives the end of the process. After a power failure
        a number has its value of the last sync, or any later value."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Returns (total, usable) bytes of the file system with `path`."""


class Worker(Protocol):
    """A process for CPU-bound work. It takes one order at a time; orders and answers are pickled."""

    @property
    def pid(self) -> int | None:
        """None before the first order and after `rest`."""

    def ask(self, order: Any) -> Any:
        """Sends an order, blocks until its answer and returns it, so it is called in a thread. Raises `WorkerLost`."""

    def rest(self) -> None:
        """Ends the process; the next order starts another one."""

    def close(self) -> None:
        """Ends the process immediately, even during its work; `ask` then raises."""


class WorkerLost(Exception):
    """The process ended before it answered, or cannot be started."""


class Threads(Protocol):
    """Threads and processes for work that must not block the loop."""

    def run(self, work: Callable[[], Result], done: Callable[[Result], object]) -> None:
        """Runs `work` in a thread, then `done(result)` on the loop. `work` must not touch state that the loop owns."""

    def worker(self, module: str) -> Worker:
        """Returns a process that runs `main()` of the Python module `module`. It is started by its first order."""

    def close(self) -> None:
        """Waits for all work that was requested before. Later calls of `run` do nothing."""


class Slice:
    """A range of a file (`storage/file_slice.py`). A channel sends a large slice without reading it into memory, if it can."""

    __slots__ = ()
    position: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fileno(self) -> int:
        """Returns the descriptor for sendfile; -1 if there is none."""

    @abstractmethod
    def read_piece(self, start: int, length: int) -> bytes:
        """Returns up to `length` bytes from `start` within the slice. Raises `OSError`."""

    @abstractmethod
    def failed(self) -> None:
        """Reports that the file lacks bytes of the slice, or that they cannot be read."""


Part = bytes | bytearray | memoryview | Slice
"""Parts that can be sent."""


class Receiver(Protocol):
    """The user of a channel. The channel receives directly into the user's buffer, without a copy."""

    def buffer(self) -> memoryview:
        """Returns the buffer for the next bytes. The receiver may pause reading in this call; then the buffer is empty."""

    def received(self, count: int) -> None:
        """Processes `count` bytes, which are in the buffer that `buffer` returned. Does not raise."""

    def drained(self) -> None:
        """Called when all bytes that `send` had queued have been sent."""

    def closed(self) -> None:
        """Called once, when the channel was closed by the peer, by an error or by `close`."""


class Channel(Protocol):
    """One open connection: bytes in both directions, in order. Plain sockets send large slices by sendfile."""

    queued_bytes: int
    """Bytes passed to `send` that the socket has not accepted yet."""
    bytes_sent: int

    def unsent_bytes(self) -> int:
        """Returns how many of the queued bytes (`queued_bytes`) are in memory; under TLS the number is approximate. All other queued bytes
        are slices of files."""

    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int: ...

    def local_host(self) -> str:
        """Returns the local address, or an empty text if the connection is closed."""

    def open(self, receiver: Receiver) -> None:
        """Starts to read. Called once, before any other method except `close`."""

    def send(self, parts: Sequence[Part]) -> None:
        """Sends the parts in order; the caller must not change them any more. Bytes that the socket does not accept are queued. If the peer
        has closed the connection, the channel closes."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Closes the channel immediately, without sending queued bytes."""


class SecuredChannel(Channel, Protocol):
    """A channel under TLS."""

    on_secured: Callable[[bytes | None], object]
    """Called once after the handshake, before any bytes are received, with the peer's certificate (DER); None if it has none."""
    on_failed: Callable[[str], object] | None
    """Called instead with the reason if the handshake fails; the channel then closes. None: the reason is logged. If the peer closes the
    connection during the handshake, only `Receiver.closed` is called."""


class Listener(Protocol):
    """A bound address."""

    port: int

    def accept(self, connected: Callable[[Channel], None]) -> None:
        """Starts to accept connections. `connected` opens or closes each one."""

    def close(self) -> None: ...


class AddressError(Exception):
    """An address cannot be bound. The message is one line for the command line."""


REFUSED = "connection refused"
"""The reason of a failed connection if the host answers, but nothing listens at the address."""
NO_HOST_NAME = "it is no host name"
"""The reason if Python refuses to look up the name, such as `a..b`, because a part of it is empty or too long."""


class Network(Protocol):
    """Connections between machines."""

    def listen(self, host: str, port: int, backlog: int, tls: str = "") -> Listener:
        """Binds an address (an empty host: all IPv4 addresses; port 0: a free one). If `tls` names a listener, channels use TLS with the
        settings of this listener. Raises `AddressError`."""

    def connect(
        self, host: str, port: int, connected: Callable[[Channel], None], failed: Callable[[str], None], *, tls: str = ""
    ) -> None:
        """Opens a connection; under TLS if `tls` names a listener, with the settings of this listener. It later calls either `connected`,
        which opens or closes the channel, or `failed` with the reason (for example `REFUSED`)."""

    def host_name(self) -> str:
        """Returns a name of this machine that other machines may know."""


Locate = Callable[[int], tuple[str, int] | None]
"""Returns the address of a broker for other brokers; None if it is unknown."""


DEFAULT_LANE, CONTROL_LANE, FETCH_LANE = "default", "control", "fetch"
"""Names of the connections to another broker: one for most requests, one for messages between the controller and brokers, and one for
followers' fetches. Further connections for fetches are `fetch-1` and so on. Forwarded requests and repairs have connections of their own.
"""


class Peers(Protocol):
    """Requests to other brokers."""

    def start(self, locate: Locate) -> None:
        """Sets the function that looks up addresses of brokers. Called once."""

    def send(self, broker_id: int, request: Any, done: Callable[[Any, int], None], *, lane: str = DEFAULT_LANE) -> None:
        """Sends a request message of `wire/messages`; calls `done(response, 0)` or `done(None, error code)`, once, now or later. A broker
        answers the requests of one lane in order. A request that waits at that broker delays later requests of its lane only."""

    def call_at_hang_up(self, function: Callable[[int], object]) -> None:
        """Calls `function` with the id of a broker each time that the broker closes an open connection. A later function replaces it."""

    def close(self) -> None:
        """Closes all connections. Requests without an answer get NETWORK_EXCEPTION."""


MULTI_BYTES_MAX = 512 * 1024
"""Maximum bytes of a multi or of a node: half of ZooKeeper's default limit. Callers split larger writes."""

OPERATION_OVERHEAD_BYTES = 64
"""Bytes that ZooKeeper's frame adds to the path and the data of one operation, rounded up."""


class StoreResult(IntEnum):
    """The result of a read or write of the metadata store.

    `CONNECTION_LOST`: a read has no result, or a write was not sent, because there was no connection. `UNKNOWN`: a write was sent and its
    answer was lost. The store may have executed it, or may still execute it before the next write of the same session. `DISK_FAILED`: the
    embedded store cannot write; nothing has changed. `REFUSED`: the request is not permitted or not valid, so trying again does not help.
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
    REFUSED = 11


class SessionEvent(IntEnum):
    """Changes of a store's session. `EXPIRED`: the session has ended and its ephemeral nodes are deleted. `NEW_SESSION`: connected again,
    with another id. Requests made before a listener is called with NEW_SESSION belong to the old session and fail."""

    CONNECTED = 0
    SUSPENDED = 1
    EXPIRED = 2
    NEW_SESSION = 3


class WatchEvent(IntEnum):
    """The reason why a watch was called. `LOST`: the connection or session ended, and the node is no longer watched; the caller reads again
    when connected."""

    CREATED = 0
    CHANGED = 1
    DELETED = 2
    CHILDREN = 3
    LOST = 4


@immutable(kw_only=True)
class StoreNode:
    """A node's bytes and the versions for conditional changes. `czxid` is the creating transaction; for a broker's registration it is the
    broker epoch."""

    data: bytes
    version: int
    czxid: int
    ephemeral_owner: int = 0


@immutable
class Create:
    """`is_sequential`: the store appends a number of ten digits to the path, larger than all earlier numbers under the same parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    is_sequential: bool = False


@immutable
class Set:
    path: str
    data: bytes
    version: int = -1


@immutable
class Delete:
    path: str
    version: int = -1


@immutable
class Check:
    path: str
    version: int


Operation = Create | Set | Delete | Check
_WITH_DATA = (Create, Set)


def operation_bytes(operation: Operation) -> int:
    """Returns the size of an operation in bytes, for the limit `MULTI_BYTES_MAX`."""
    data = operation.data if isinstance(operation, _WITH_DATA) else b""
    return OPERATION_OVERHEAD_BYTES + len(operation.path) + len(data)


@immutable
class Outcome:
    """The result of a multi. `index` is the index of the failed operation, -1 if there is none. After success `created` has the paths of
    the created nodes."""

    result: StoreResult
    index: int = -1
    created: tuple[str, ...] = ()


Watch = Callable[[WatchEvent], object]
"""Called once, on the loop. To continue watching, the caller reads again."""


class MetadataStore(Protocol):
    """One session on a tree of versioned nodes: ZooKeeper, or the journal of a single broker.

    Every request is answered by one callback on the loop, in the order of the requests. A request that is not sent (TOO_LARGE,
    SESSION_EXPIRED) may be answered before earlier requests. The embedded store mostly answers before the call returns. After a change, the
    watch is called before any read is answered that shows the change. Every request can fail. With `watch`, a successful read sets a watch:
    `get` and `children` on an existing node, `exists` also on a missing one.
    """

    def get(self, path: str, done: Callable[[StoreResult, StoreNode | None], object], *, watch: Watch | None = None) -> None:
        """Calls `done` with OK and the node, or NO_NODE. Watches its data and its deletion."""

    def exists(self, path: str, done: Callable[[StoreResult], object], *, watch: Watch | None = None) -> None:
        """Calls `done` with OK or NO_NODE. Watches creation, data and deletion."""

    def children(self, path: str, done: Callable[[StoreResult, list[str]], object], *, watch: Watch | None = None) -> None:
        """Calls `done` with OK and the sorted names, or NO_NODE. Watches the creation and deletion of children, and the deletion of the
        node."""

    def multi(self, operations: Sequence[Operation], done: Callable[[Outcome], object]) -> None:
        """Executes all operations or none. A multi has a position in the order of all writes, even if it only checks versions. A read has
        no such position: it may show an older state."""

    def listen(self, listener: Callable[[SessionEvent], object]) -> None:
        """Calls `listener` at every later change of the session."""

    def is_connected(self) -> bool: ...

    def session_id(self) -> int:
        """The id of this session, which owns the ephemeral nodes that it creates."""

    def lease_ends_ms(self) -> float:
        """Returns the monotonic time before which this session cannot have expired: the sending time of the last answered request, plus the
        session's timeout. While connected, the store sends requests by itself. Infinite without expiry."""

    def close(self) -> None:
        """Ends the session and removes its ephemeral nodes. Later requests are answered with SESSION_EXPIRED."""


ReadDocument = Callable[[str, str | None], bytes]
"""Reads a small document from a URL. The second argument is a PEM file of trusted certificate authorities (None: the system's). It blocks,
so it is called in a thread. Raises `OSError`, or `ValueError` for a malformed address."""


class LoginToken(Protocol):
    """A bearer token for this broker's logins to other brokers."""

    def first_message(self) -> bytes:
        """The client's first message of OAUTHBEARER."""


class TokenSource(Protocol):
    """A source of bearer tokens (`client/token_source.py`). Times are seconds since 1970."""

    @property
    def due_s(self) -> float:
        """When `token` begins to fetch another token."""

    @property
    def ends_s(self) -> float:
        """The time when the current token expires."""

    @property
    def failure(self) -> OttlaError | None:
        """The error of the last attempt to replace the current token; None if it succeeded."""

    def token(self) -> LoginToken:
        """Returns the current token, or fetches another one. It blocks, so it is called in a thread. Raises `OttlaError` if there is no
        token."""

    def discard(self, token: LoginToken) -> None:
        """Drops a refused token."""


MakeTokenSource = Callable[[Mapping[str, str]], TokenSource]
"""Makes a source from the properties of a client. Raises `ValueError` with one line if they are invalid."""
