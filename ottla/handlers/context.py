"""The arguments of a handler: the broker, the request's context, and a `Pending` for an answer that is not there yet.

A handler is `handle(broker, request, body)`. It returns the response, `None` if no answer is wanted, a `Pending` that is completed later,
or a `Task` that makes one of these in steps. The requests of a connection are executed in the order of their arrival, and their answers are
sent in that order. A pending answer does not hold up the next request, unless its request changes metadata or authenticates the client.

Handlers ask only the `Authorizer` about permissions, with the principal, host and listener of `ConnectionInfo`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ottla.base.broker_ports import Ages
from ottla.base.errors import ErrorCode, WireError
from ottla.base.loop.lease import Lease
from ottla.base.ports import Clock, Peers, Random, TimerHandle, Timers
from ottla.base.types import TopicPartition
from ottla.machine.memory import NO_OWNER
from ottla.replication.refused_batches import RefusedBatches
from ottla.security.audit import AuditLog
from ottla.security.authentication import Authentication, Exchange
from ottla.security.authorizer import Authorizer
from ottla.security.principal import ANONYMOUS
from ottla.sharing.dead_letters import DeadLetterCounts

if TYPE_CHECKING:
    from ottla.base.acls import AclFilter, Binding, Pattern
    from ottla.base.cluster_metadata import ClusterMetadata
    from ottla.base.config import BrokerConfig
    from ottla.base.delegation_token import DelegationToken
    from ottla.base.share_state import Persister
    from ottla.cluster.acl_rules import Done, RuleChange
    from ottla.cluster.delegation_tokens import Decide
    from ottla.cluster.delegation_tokens import Done as TokenDone
    from ottla.controller.api import Controller
    from ottla.groups.coordinator import GroupCoordinator
    from ottla.replication.fetch_sessions import FetchSessions
    from ottla.replication.follower_sessions import FollowerSessions
    from ottla.replication.leader import Leader
    from ottla.replication.partition import Partition
    from ottla.replication.stage_space import StageSpace
    from ottla.security.cluster_identity import ClusterIdentity, Peer
    from ottla.security.quotas.clients import ClientQuotas
    from ottla.sharing.registry import SharePartitions
    from ottla.sharing.sessions import ShareSessions
    from ottla.sharing.state_coordinators import ShareStateCoordinators
    from ottla.storage.future_log import FutureLog
    from ottla.storage.time_search import TimeAnswers
    from ottla.telemetry.clients import ReportingClients
    from ottla.transactions.coordinators import TransactionCoordinators
    from ottla.wire.messages.describe_frames import FramePair


Task = Generator[None, None, Any]
"""Work that may take long. It yields where other work may run, and returns the response or a `Pending`. A request with a task that ends
within a time slice is answered immediately. State that a task has read may change during a `yield`."""


class Pending:
    """An answer that is given later. The handler calls `complete` once, with any value that a handler may return, or calls `fail`. The
    connection registers for the outcome with `then`. When the connection is closed it calls `abandon`, if set; then no answer is needed."""

    __slots__ = ("abandon", "answered", "error", "failed", "is_change", "is_done", "keeps_request", "response")

    def __init__(self, *, keeps_request: bool = True, is_change: bool = False) -> None:
        self.keeps_request = keeps_request
        """Whether the decoded request stays in memory until the answer."""
        self.is_change = is_change
        """Whether this request changes metadata although its API usually does not. Its connection executes no further request until the
        answer."""
        self.is_done = False
        self.response: Any = None
        """The response, or the task or other `Pending` that makes it."""
        self.error: Exception | None = None
        """The failure, if there is no answer."""
        self.abandon: Callable[[], None] | None = None
        # The functions that `then` has registered.
        self.answered: Callable[[Any], object] | None = None
        self.failed: Callable[[Exception], object] | None = None

    def complete(self, response: Any) -> None:
        assert not self.is_done, "an answer was given twice"
        self.is_done = True
        self.response = response
        if self.answered is not None:
            self.answered(response)

    def fail(self, error: Exception) -> None:
        """Ends the request without an answer; its connection is closed. Raises the error if the request was already answered."""
        if self.is_done:
            raise error
        self.is_done = True
        self.error = error
        if self.failed is not None:
            self.failed(error)

    def then(self, answered: Callable[[Any], object], failed: Callable[[Exception], object]) -> None:
        """Calls `answered(response)` or `failed(error)` when the request is answered or has failed; immediately if it already is."""
        if self.error is not None:
            failed(self.error)
        elif self.is_done:
            answered(self.response)
        else:
            self.answered, self.failed = answered, failed


REQUESTS_BEFORE_AUTHENTICATION_MAX = 20
"""Maximum of requests before a client is authenticated. A client sends ApiVersions up to three times, and the steps of a login. Without a
limit, such requests delayed other clients by 31 ms."""


class ConnectionInfo:
    """The state of one client connection that handlers use."""

    __slots__ = (
        "_closing", "_session_timer", "authenticated_again_ms", "authentication",
        "client_software_name", "client_software_version", "has_extensions", "host", "identity",
        "is_authenticated", "is_forwarded", "is_inter_broker", "listener", "peer", "peer_exchange", "principal",
        "requests_before_authentication", "session_ends_ms",
    )  # fmt: skip

    def __init__(
        self, *, identity: str, host: str, listener: str, principal: str = ANONYMOUS, authentication: Authentication | None = None
    ) -> None:
        self.identity = identity
        self.host = host
        self.listener = listener
        self.principal = principal
        self.authentication = authentication
        """None on a listener that does not authenticate its clients."""
        self.is_authenticated = authentication is None
        self.is_forwarded = False
        """Whether the client is connected to another broker, which has forwarded the request."""
        self.is_inter_broker = False
        """Whether the other end has proved to be a broker of this cluster."""
        self.peer: Peer | None = None
        self.peer_exchange: Exchange | None = None
        """The exchange of that proof while it is incomplete."""
        self.has_extensions = False
        """Whether the client has asked for our own APIs (`wire.apis.EXTENSIONS_SINCE`)."""
        self.client_software_name = ""
        self.client_software_version = ""
        self.authenticated_again_ms: int | None = None
        """When the client last began to authenticate again."""
        self.requests_before_authentication = 0
        self.session_ends_ms: int | None = None
        """When the session of the client ends, by the monotonic clock; None if it does not end."""
        self._session_timer: TimerHandle | None = None
        self._closing: dict[object, Callable[[object], None]] = {}

    @property
    def owner(self) -> str:
        """Returns the owner of memory that a coordinator uses for this client: the principal, or `NO_OWNER` for an anonymous client."""
        return NO_OWNER if self.principal == ANONYMOUS else self.principal

    @property
    def is_refused(self) -> bool:
        """Whether the client's authentication was refused."""
        return self.authentication is not None and self.authentication.is_refused

    def authenticated(self, principal: str) -> None:
        """Notes that the client is authenticated and may send any request."""
        self.principal = principal
        self.is_authenticated = True
        self.requests_before_authentication = 0

    def note_before_authentication(self) -> None:
        """Counts a request of a client that has not authenticated. Raises `WireError` when there were too many."""
        self.requests_before_authentication += 1
        if self.requests_before_authentication > REQUESTS_BEFORE_AUTHENTICATION_MAX:
            raise WireError(f"more than {REQUESTS_BEFORE_AUTHENTICATION_MAX} requests before authentication")

    def authenticates_again(self, now_ms: int) -> None:
        """Notes that the client authenticates again. No other request is executed until that is complete. The principal does not change."""
        self.authenticated_again_ms = now_ms
        self.is_authenticated = False

    @property
    def must_authenticate_again(self) -> bool:
        """Whether the client was authenticated, and has to complete another authentication before anything else."""
        return not self.is_authenticated and self.authentication is not None and self.authentication.has_authenticated

    def session_ended(self) -> None:
        """Notes that the client has to authenticate again before anything else is executed."""
        self.is_authenticated = False

    def limit_session(self, timer: TimerHandle | None, ends_ms: int | None = None) -> None:
        """Sets the timer that ends the client's session at `ends_ms`, and cancels the former timer."""
        if self._session_timer is not None:
            self._session_timer.cancel()
        self._session_timer, self.session_ends_ms = timer, ends_ms

    def wait_ms(self, wanted_ms: int, clock: Clock) -> int:
        """Returns how long a request may wait for records: at most until the session of its client ends."""
        if self.session_ends_ms is None:
            return wanted_ms
        return min(wanted_ms, max(self.session_ends_ms - clock.monotonic_ms(), 0))

    def proved_broker(self, peer: Peer) -> None:
        """Notes that the other end is a broker of this cluster. This is valid as long as the connection; its login may have to be renewed.
        """
        self.peer = peer
        self.is_inter_broker = True

    def call_when_closed(self, subject: object, function: Callable[[object], None]) -> None:
        """Calls `function(subject)` when the connection is closed, unless `forget_closing` was called before."""
        self._closing[subject] = function

    def forget_closing(self, subject: object) -> None:
        self._closing.pop(subject, None)

    def closed(self) -> None:
        """Called when the connection is closed: calls the functions registered with `call_when_closed`."""
        self.limit_session(None)
        closing, self._closing = self._closing, {}
        for subject, function in closing.items():
            function(subject)


class RequestContext:
    """The sender of a request, and its version. Requests of one connection and version share one, so it must not be changed."""

    __slots__ = ("client_id", "connection", "version")

    def __init__(self, version: int, client_id: str | None, connection: ConnectionInfo) -> None:
        self.version = version
        self.client_id = client_id
        self.connection = connection


class LogDirectory(Protocol):
    """One entry of `log.dirs`."""

    path: str
    is_online: bool
    is_cordoned: bool

    def free_bytes(self) -> tuple[int, int]:
        """Returns (total, usable) bytes of its file system. Raises `StorageError`."""


class Partitions(Protocol):
    """The partitions on this broker (`server/partition_table.py`)."""

    def get(self, topic: str, partition: int) -> Partition | None:
        """Returns None if there is no replica on this broker, or it could not be opened."""

    def by_index(self, topic: str) -> Mapping[int, Partition]:
        """Returns the partitions of a topic on this broker, by their numbers."""

    def get_by_id(self, topic_id: bytes, partition: int) -> Partition | None: ...

    def absence(self, topic: str, partition: int) -> ErrorCode:
        """Returns the error for clients when `get` has returned None."""

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def all(self) -> Iterable[Partition]: ...

    def log_directories(self) -> Iterable[LogDirectory]: ...


class ReplicaMoves(Protocol):
    """The moves of replicas between the log directories of this broker (`server/directories/moves.py`)."""

    def move(self, partition: Partition, path: str) -> ErrorCode:
        """Begins to move a replica, changes the destination of its move, or ends the move."""

    def refusal(self, path: str) -> ErrorCode:
        """Returns the error for moves into this directory: LOG_DIR_NOT_FOUND, INVALID_REPLICA_ASSIGNMENT (it is cordoned),
        KAFKA_STORAGE_ERROR or NONE."""

    def prefer(self, key: TopicPartition, path: str) -> ErrorCode:
        """Notes the directory for a replica that is not on this broker yet. Returns REPLICA_NOT_AVAILABLE, or another error."""

    def under_way(self) -> Iterable[FutureLog]: ...


class SuspectedBrokers(Protocol):
    """Brokers that may have just died (`cluster/suspects.py`)."""

    @property
    def brokers(self) -> Collection[int]: ...

    def call_when_over(self, is_over: Callable[[Collection[int]], bool], function: Callable[[], object]) -> None:
        """Calls `function` once `is_over(suspected brokers)` is true; immediately if too many requests wait."""


class WaitingRequest(Protocol):
    """A waiting request, until cancelled."""

    is_cancelled: bool

    def mark(self) -> None:
        """Wakes the request soon."""

    def add_acknowledgement(self, leader: Leader, last_offset: int, acks: int) -> None:
        """Also wakes the request when the leader acknowledges the append up to `last_offset`, or can no longer acknowledge it."""

    def wait_for(self, timeout_ms: int, now_ms: int) -> None:
        """Replaces the timeout, even if it has passed: the request now waits until `timeout_ms` after the present time `now_ms`."""

    def cancel(self) -> None: ...


class PartitionNotifier(Protocol):
    """Calls its watchers whenever a partition or share partition has changed (`base/loop/notifier.py`)."""

    def add_watcher(self, function: Callable[[], None]) -> None: ...

    def remove_watcher(self, function: Callable[[], None]) -> None: ...


class WaitingRequests(Protocol):
    """The requests that wait for changes of partitions (`server/execution/waiters.py`)."""

    def watch(
        self, watched: Sequence[PartitionNotifier], timeout_ms: int, wake: Callable[[], None], on_timeout: Callable[[], None]
    ) -> WaitingRequest:
        """Calls `wake` after changes of a watched partition (once for several changes), and `on_timeout` once after `timeout_ms`, until
        cancelled."""

    def do_in_turns(self, steps: Iterator[object]) -> None:
        """Executes long work of a waiting request in time slices, alternating with the work of other waiting requests."""


Attempt = Callable[[Any], Any]
"""Called with the answer to an order, or None. Returns the next order that it needs, or None when it has finished."""


class RecordInspections(Protocol):
    """The orders for the worker process that decodes records (`server/inspections.py`)."""

    @property
    def lines(self) -> Collection[tuple[ConnectionInfo, object]]:
        """Returns the pairs of client and subject with waiting attempts."""

    times: TimeAnswers

    def defer(self, client: ConnectionInfo, subject: object, order: Any, attempt: Attempt) -> None:
        """Calls `attempt` with the answer to `order`, or with None if `order` is None, after all earlier attempts of this client and
        subject."""

    def ask(self, client: ConnectionInfo, order: Any, done: Callable[[Any], object]) -> None:
        """Calls `done` with the answer, or with None if the process was lost. Does not call it after the client's connection is closed."""


class InternalTopicCreation(Protocol):
    def ensure(self, topic: str, done: Callable[[ErrorCode], None]) -> None:
        """Creates an internal topic if it is missing. Calls `done(NONE)` when it exists, or `done(COORDINATOR_NOT_AVAILABLE)`."""


class ControlRequests(Protocol):
    """The controller's requests to this broker (`cluster/control/inbox.py`)."""

    def take(self, request: Any, done: Callable[[ErrorCode], object]) -> None:
        """Takes a LeaderAndIsr, StopReplica or UpdateMetadata request of the newest version, which may be one part of a message. Executes
        the message after its last part. Calls `done` with the answer's code."""


class AccessRules(Protocol):
    """The access rules of the cluster (`cluster/acl_rules.py`)."""

    def bindings(self, wanted: AclFilter) -> Generator[None, None, list[Binding]]:
        """Returns the rules in force that match the filter, ordered by pattern; yields between steps."""

    def change(self, changes: Mapping[Pattern, RuleChange], done: Done) -> None:
        """Makes the changes. Calls `done` when they are stored and in force here, with the errors of the patterns that could not be
        changed."""


class StoredTokens(Protocol):
    """The delegation tokens of the cluster (`cluster/delegation_tokens.py`)."""

    def all(self) -> list[DelegationToken]:
        """Returns every stored token, including expired ones, ordered by id."""

    def create(self, token: DelegationToken, done: TokenDone) -> None:
        """Stores a token. Calls `done` when clients can log in with it here, or with the error."""

    def update(self, token_id: str, decide: Decide, done: TokenDone) -> None:
        """Changes or removes a token by `decide`. Calls `done` with DELEGATION_TOKEN_NOT_FOUND if it is not stored."""


ForwardedAnswer = Callable[[bytes | ErrorCode | Exception], None]


class ForwardedRequests(Protocol):
    """Executes requests of clients that another broker has forwarded (`server/execution/dispatch.py`)."""

    def execute_forwarded(self, request: bytes, client: ConnectionInfo, done: ForwardedAnswer) -> None:
        """Calls `done` with the answer's bytes. Raises `ApiError` for a request that is not for the controller, `WireError` for a malformed
        one. For a large request, or after a later failure, calls `done` with the error instead."""


class IsrCounters(Protocol):
    """Numbers of expansions and shrinks of in-sync sets that this broker proposed and the controller accepted (`cluster/isr_changes.py`).
    """

    expansions: int
    shrinks: int


class RecordedFrames(Protocol):
    """The recorded requests of all connections and their answers (`server/execution/frame_watch.py`)."""

    @property
    def newest(self) -> int:
        """Returns the highest number so far, -1 before the first."""

    def since(self, after: int, bytes_max: int) -> tuple[int, list[FramePair]]:
        """Returns the pairs with numbers above `after`, and how many of these pairs are no longer in memory. Begins the recording."""


@dataclass(slots=True)
class Broker:
    """All parts of the broker that handlers may use; created once by `server/node.py`."""

    broker_id: int
    config: BrokerConfig
    clock: Clock
    """The clock of `ages`, which decides when records, sessions, transactions and tokens expire."""
    timers: Timers
    ages: Ages
    random: Random
    metadata: ClusterMetadata
    controller: Controller
    """The controller on this broker, for requests of clients."""
    controller_link: Controller
    """The elected controller on any broker, for this broker's own requests."""
    peers: Peers
    control: ControlRequests
    forwarded: ForwardedRequests
    cluster_identity: ClusterIdentity | None
    """None for a single broker."""
    partitions: Partitions
    groups: GroupCoordinator
    transactions: TransactionCoordinators
    share_states: ShareStateCoordinators
    share_persister: Persister
    share_partitions: SharePartitions
    share_sessions: ShareSessions
    internal_topics: InternalTopicCreation
    waiters: WaitingRequests
    inspections: RecordInspections
    fetch_sessions: FetchSessions
    stages: StageSpace
    authorizer: Authorizer
    follower_sessions: FollowerSessions
    directory_moves: ReplicaMoves
    frames: RecordedFrames
    isr_changes: IsrCounters | None
    """None for a single broker."""
    audit: AuditLog
    reporting_clients: ReportingClients
    quotas: ClientQuotas | None = None
    """None while no client has a quota."""
    acl_rules: AccessRules | None = None
    """None without an authorizer."""
    delegation_tokens: StoredTokens | None = None
    """None without `delegation.token.secret.key`."""
    suspects: SuspectedBrokers | None = None
    """None for a single broker."""
    lease: Lease | None = None
    """None for the embedded metadata store, because its session never expires."""
    refused_batches: RefusedBatches = field(default_factory=RefusedBatches)
    dead_letters: DeadLetterCounts = field(default_factory=DeadLetterCounts)
