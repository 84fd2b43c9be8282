"""The ports: clock, timers, randomness, disk, threads, network, peers and metadata store, as protocols.

Core, handlers and `server/node.py` import no time, os, socket, random, threading or asyncio; they are handed these instead. The production
adapters are thin, and the simulation replaces all of them, so a seed replays a run. Units: milliseconds and bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from ottla.base.errors import OttlaError
from ottla.base.immutable import immutable

Result = TypeVar("Result")


class Clock(Protocol):
    """`monotonic_ms` for every interval and deadline, `wall_ms` only for timestamps and retention, `nanoseconds` only for metrics and for
    how long work has held the loop."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...

    def nanoseconds(self) -> int: ...


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

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fills `buffer` from `position` on and returns the number of bytes; fewer than its length only at the end of the file."""

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

    def map_cells(self, path: str) -> memoryview:
        """Maps a file into memory, as a row of 64-bit numbers that can be changed. A change survives the end of the process at once; after
        a power failure each number is the new one or, if the file was not synced since, any older one."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds `path`."""


class Worker(Protocol):
    """A process for work that burns the CPU. It takes one order at a time; orders and answers are values that pickle."""

    @property
    def pid(self) -> int | None:
        """None while no process runs."""

    def ask(self, order: Any) -> Any:
        """Blocks until the answer, so it is called in a thread. Raises `WorkerLost`."""

    def rest(self) -> None:
        """Ends the process; the next order starts another one."""

    def close(self) -> None:
        """Ends the process at once, in the middle of its work if need be: `ask` then raises."""


class WorkerLost(Exception):
    """The process ended before it answered."""


class Threads(Protocol):
    """Threads and processes for what must not hold the loop."""

    def run(self, work: Callable[[], Result], done: Callable[[Result], object]) -> None:
        """Runs `work` in a thread, then `done(result)` on the loop. `work` must not touch state that the loop owns."""

    def widen(self) -> None:
        """Has more work run at the same time from now on: the process ends soon, and its threads mostly wait for the disk."""

    def worker(self, module: str) -> Worker:
        """A process that runs `main()` of this module; started with its first order."""

    def close(self) -> None:
        """Waits for the work that is running; work that is asked for later is not done."""


class Slice:
    """A part of a file (`storage/file_slice.py`), to be sent without being read into memory where the channel can do that."""

    __slots__ = ()
    position: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 where there is none."""

    @abstractmethod
    def read_piece(self, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start` within the slice. Raises `OSError`."""

    @abstractmethod
    def failed(self) -> None:
        """The bytes of the slice are not in its file, or cannot be read."""


Part = bytes | bytearray | memoryview | Slice
"""Parts that can be sent."""


class Receiver(Protocol):
    """The user of a channel. The channel receives directly into the user's buffer; there is no copy between the two."""

    def buffer(self) -> memoryview:
        """Where the next bytes are to be received; empty if the user has paused reading in this call."""

    def received(self, count: int) -> None:
        """`count` bytes lie in what `buffer` returned. Does not raise."""

    def drained(self) -> None:
        """All that was queued has been sent."""

    def closed(self) -> None:
        """The channel is closed, by the peer, by an error or by `close`; called once."""


class Channel(Protocol):
    """One open connection: bytes in both directions, in order. Plain sockets use sendfile; no user of a channel knows which kind it has."""

    queued_bytes: int
    """Bytes that were sent here and that the peer has not taken yet."""
    bytes_sent: int

    def unsent_bytes(self) -> int:
        """The part of `queued_bytes` that is in memory; the rest are slices of files."""

    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int: ...

    def local_host(self) -> str:
        """The address of this end, empty if the connection is closed."""

    def open(self, receiver: Receiver) -> None:
        """Starts to read; called once, before anything else but `close`."""

    def send(self, parts: Sequence[Part]) -> None:
        """Sends the parts in order, and owns them from now on. Bytes that the peer does not take at once are queued; if the peer has closed
        the connection, the channel closes."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Closes at once: what is still queued is not sent."""


class SecuredChannel(Channel, Protocol):
    """A channel under TLS."""

    on_secured: Callable[[bytes | None], object]
    """Called once when the handshake is complete, with the peer's certificate (DER), before anything is received."""
    on_failed: Callable[[str], object] | None
    """Called instead with the reason when it fails; the channel closes then. None: a line in the log."""


class Listener(Protocol):
    """A bound address."""

    port: int

    def accept(self, connected: Callable[[Channel], None]) -> None:
        """Starts to accept; each connection is given to `connected`, which opens or closes it."""

    def close(self) -> None: ...


class AddressError(Exception):
    """An address that cannot be listened on: one line for the command line."""


REFUSED = "connection refused"
"""The reason for a connection that failed because nothing listens at the address of a host that answers."""


class Network(Protocol):
    """Connections between machines."""

    def listen(self, host: str, port: int, backlog: int, tls: str = "") -> Listener:
        """Binds an address (an empty host: all of them; port 0: any free one); its channels speak TLS if `tls` names the listener whose
        settings hold (`SecuredChannel`). Raises `AddressError`."""

    def connect(
        self, host: str, port: int, connected: Callable[[Channel], None], failed: Callable[[str], None], *, tls: str = ""
    ) -> None:
        """Calls one of the two later: `connected` opens the channel or closes it, `failed` is given the reason (`REFUSED` for one). With
        `tls` a TLS handshake is part of it, by the settings of the listener of that name."""

    def host_name(self) -> str:
        """A name under which other machines may reach this one."""


Locate = Callable[[int], tuple[str, int] | None]
"""The address at which other brokers reach a broker, None if it is not known."""


DEFAULT_LANE, CONTROL_LANE, FETCH_LANE = "default", "control", "fetch"
"""The connections to another broker: for most requests, for messages between the controller and brokers, and for followers' fetches
(further ones are `fetch-1` and so on)."""


class Peers(Protocol):
    """Requests to other brokers."""

    def start(self, locate: Locate) -> None:
        """Called once, when the addresses of brokers can be looked up."""

    def send(self, broker_id: int, request: Any, done: Callable[[Any, int], None], *, lane: str = DEFAULT_LANE) -> None:
        """Sends a request message of `wire/messages`; calls `done(response, 0)` or `done(None, error code)`, once, now or later. A broker
        answers the requests of one lane in their order, so one that waits there holds up those behind it, and none of another lane."""

    def call_at_hang_up(self, function: Callable[[int], object]) -> None:
        """Calls `function` with the id of a broker each time that an open connection to it was closed by the other side."""

    def close(self) -> None:
        """Closes all connections; what waits for an answer gets NETWORK_EXCEPTION."""


MULTI_BYTES_MAX = 512 * 1024
"""The largest multi that a store takes, and the largest node: half of what ZooKeeper refuses by default. Callers split larger writes."""

OPERATION_OVERHEAD_BYTES = 64
"""Bytes that ZooKeeper's frame adds to the path and the data of one operation, rounded up."""


class StoreResult(IntEnum):
    """How a read or a write of the metadata store ended.

    `CONNECTION_LOST`: there was no connection, so a read has no value and a write was not sent. `UNKNOWN`: a write was sent and its answer
    was lost; it has happened, or has not, or may still happen before the next write of the same session. `DISK_FAILED`: the embedded
    store cannot write; nothing has changed. `REFUSED`: this identity may not do it, or no store would; trying again does not help.
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
    """Changes of a store's session. `EXPIRED` ends it and removes its ephemeral nodes; `NEW_SESSION`: connected again, under another id.
    Requests that are made before a listener has got NEW_SESSION belong to the old session and fail.
    """

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


@immutable(kw_only=True)
class StoreNode:
    """A node's bytes and the versions that guard its next change (`czxid` is the creating transaction, a broker's epoch)."""

    data: bytes
    version: int
    czxid: int
    ephemeral_owner: int = 0


@immutable
class Create:
    """`is_sequential`: the store appends a number of ten digits to the path, larger than all before it under the same parent."""

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
    """The size of an operation in bytes, as it counts for `MULTI_BYTES_MAX`."""
    data = operation.data if isinstance(operation, _WITH_DATA) else b""
    return OPERATION_OVERHEAD_BYTES + len(operation.path) + len(data)


@immutable
class Outcome:
    """How a multi ended: on failure with the index of the operation that failed, if one did; else with the paths of the created nodes."""

    result: StoreResult
    index: int = -1
    created: tuple[str, ...] = ()


Watch = Callable[[WatchEvent], object]
"""Called once, on the loop; to go on watching, read again."""


class MetadataStore(Protocol):
    """One session on a tree of versioned nodes: ZooKeeper, or the journal of a single broker.

    Every request is answered by one callback on the loop, in the order of the requests (the embedded store calls back before it returns). A
    watch is called before the answer to a later read that shows the change. Every request can fail. A successful read sets a watch: `get`
    and `children` on a node that exists, `exists` also on a node that does not.
    """

    def get(self, path: str, done: Callable[[StoreResult, StoreNode | None], object], *, watch: Watch | None = None) -> None:
        """OK with the node, or NO_NODE; watches its data and its deletion."""

    def exists(self, path: str, done: Callable[[StoreResult], object], *, watch: Watch | None = None) -> None:
        """OK or NO_NODE; watches creation, data and deletion."""

    def children(self, path: str, done: Callable[[StoreResult, list[str]], object], *, watch: Watch | None = None) -> None:
        """OK with the names, sorted, or NO_NODE. Watches the creation and deletion of children, and the deletion of the node."""

    def multi(self, operations: Sequence[Operation], done: Callable[[Outcome], object]) -> None:
        """Executes all operations or none. A multi of checks alone is ordered with the writes, too."""

    def listen(self, listener: Callable[[SessionEvent], object]) -> None:
        """Calls `listener` at every change of the session from now on."""

    def is_connected(self) -> bool: ...

    def session_id(self) -> int:
        """The owner of the ephemeral nodes that this session creates."""

    def lease_ends_ms(self) -> float:
        """The monotonic time before which this session cannot have expired: when the last request that was answered had been sent, plus
        the session's timeout. The store keeps asking by itself while it is connected. Infinite where a session never expires.
        """

    def close(self) -> None:
        """Ends the session and removes its ephemeral nodes; every later request answers SESSION_EXPIRED."""


ReadDocument = Callable[[str, str | None], bytes]
"""Reads a small document from an address, with the authorities that may vouch for its host (a PEM file; None: the system's). It blocks, so
it belongs in a thread. Raises `OSError`."""


class LoginToken(Protocol):
    """A bearer token for this broker's logins to other brokers."""

    def first_message(self) -> bytes:
        """The client's first message of OAUTHBEARER."""


class TokenSource(Protocol):
    """A source of such tokens (`client/token_source.py`). Times are seconds since 1970."""

    @property
    def due_s(self) -> float:
        """When `token` gets another one."""

    @property
    def ends_s(self) -> float:
        """When the token at hand expires."""

    @property
    def failure(self) -> OttlaError | None:
        """Why the token at hand could not be replaced when it was due."""

    def token(self) -> LoginToken:
        """The token at hand, or another one. It blocks, so it belongs in a thread. Raises `OttlaError` where none can be had."""

    def discard(self, token: LoginToken) -> None:
        """Forgets a token that was refused."""


MakeTokenSource = Callable[[Mapping[str, str]], TokenSource]
"""Makes a source from the properties of a client. `ValueError`, in one line, when they make no sense."""


@immutable(kw_only=True)
class Ports:
    """All that a broker is handed."""

    clock: Clock
    timers: Timers
    random: Random
    disk: Disk
    threads: Threads
    network: Network
    store: MetadataStore
    peers: Peers | None = None
    """None: connections over `network` (`server/peers.py`)."""
    read_document: ReadDocument | None = None
    """None where no setting names an address of a document."""
    make_token_source: MakeTokenSource | None = None
    """None where brokers do not log in by tokens."""
