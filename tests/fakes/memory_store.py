"""A model of ZooKeeper: several sessions on one tree of nodes, with the faults that can happen to a session.

`ZooKeeperModel` is the server, `MemoryStore` one session of it (`MemoryStore()` alone makes a server of its own). Without `timers` every
request is answered before the method returns; with them each request and each answer takes `delay_ms()`, in order within a session. Watches
are delivered in order with answers, so a session gets a watch before the answer to a later read that shows the change.

Faults of a session: `fail_next` (a write), `fail_next_read`, `disconnect` and `reconnect`, `expire` and `renew`, `hold` and `release`. A
write that is in flight when the connection breaks is applied, not applied, or applied late: after the answer UNKNOWN and before the next
write of the same session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from ottla.adapters.node_tree import NodeTree, Ringing
from ottla.base.ports import (
    MULTI_BYTES_MAX,
    Clock,
    Create,
    Operation,
    Outcome,
    SessionEvent,
    StoreNode,
    StoreResult,
    Timers,
    Watch,
    WatchEvent,
    operation_bytes,
)

Thunk = Callable[[], object]
SESSION_SHIFT = 32


class ZooKeeperModel:
    """The server: one tree, the sessions that are alive, one counter of transactions."""

    def __init__(
        self, nodes: dict[str, StoreNode] | None = None, sequences: dict[str, int] | None = None, *, first_session: int = 1
    ) -> None:
        self.tree = NodeTree(nodes, sequences)
        self.multis: list[list[Operation]] = []
        self.sessions: dict[int, MemoryStore] = {}
        self._next_session = first_session
        self._zxid = first_session << SESSION_SHIFT

    def session(
        self, timers: Timers | None = None, delay_ms: Callable[[], int] = lambda: 1, *, lease: Lease | None = None
    ) -> MemoryStore:
        return MemoryStore(model=self, timers=timers, delay_ms=delay_ms, lease=lease)

    def admit(self, store: MemoryStore) -> int:
        session_id, self._next_session = self._next_session, self._next_session + 1
        self.sessions[session_id] = store
        return session_id

    def apply(self, operations: list[Operation], session_id: int) -> Outcome:
        if session_id not in self.sessions:
            return Outcome(StoreResult.SESSION_EXPIRED)
        if sum(map(operation_bytes, operations)) > MULTI_BYTES_MAX:
            return Outcome(StoreResult.TOO_LARGE)
        staged, outcome = self.tree.stage(operations, czxid=self._zxid + 1, session_id=session_id)
        if outcome.result is StoreResult.OK:
            self._zxid += 1
            if staged.nodes:
                self.multis.append(operations)
            self._ring(self.tree.commit(staged))
        return outcome

    def end(self, session_id: int) -> None:
        """Ends a session: its ephemeral nodes are deleted, and watches of other sessions are called."""
        if self.sessions.pop(session_id, None) is not None:
            self.tree.take_watches(session_id)
            self._ring(self.tree.commit(self.tree.stage_end_of(session_id)))

    def lasting_nodes(self) -> dict[str, StoreNode]:
        return {path: node for path, node in self.tree.nodes().items() if not node.ephemeral_owner}

    def _ring(self, ringing: Ringing) -> None:
        for session_id, watch, event in ringing:
            self.sessions[session_id].on_watch(watch, event)


@dataclass(frozen=True, slots=True)
class Lease:
    """The basis of a session's lease: the client's clock, and the timeout after which the server may end the session."""

    clock: Clock
    session_timeout_ms: int


@dataclass(slots=True)
class Request:
    """A request in flight: `execute` runs at the server and returns the answer; `lost` is called instead if the connection breaks."""

    execute: Callable[[], Thunk]
    lost: Thunk
    is_write: bool
    sent_ms: float = 0
    is_executed: bool = False
    is_answered: bool = False

    def answer(self, thunk: Thunk) -> None:
        if not self.is_answered:
            self.is_answered = True
            thunk()


class MemoryStore:
    """`ports.MetadataStore`: one session."""

    def __init__(
        self,
        nodes: dict[str, StoreNode] | None = None,
        *,
        model: ZooKeeperModel | None = None,
        timers: Timers | None = None,
        delay_ms: Callable[[], int] = lambda: 1,
        lease: Lease | None = None,
    ) -> None:
        """With a `lease` and `timers` the session asks the server by itself three times within its timeout."""
        self.model = model if model is not None else ZooKeeperModel(nodes)
        self._timers = timers
        self._delay_ms = delay_ms
        self._session = self.model.admit(self)
        self._is_connected = True
        self._is_over = False
        self._listeners: list[Callable[[SessionEvent], object]] = []
        self._failure: tuple[StoreResult, bool] | None = None
        self._read_failure: StoreResult | None = None
        self._held: list[Thunk] | None = None
        self._late: list[list[Operation]] = []
        self._is_failure_late = False
        self._under_way: list[Request] = []
        self._to_client: deque[Thunk] = deque()
        self._lease = lease
        self._answered_sent_ms = self._now_ms()
        if lease is not None and timers is not None:
            self._keep_asking(lease.session_timeout_ms / 3)

    # The port

    def get(self, path: str, done: Callable[[StoreResult, StoreNode | None], object], *, watch: Watch | None = None) -> None:
        def read() -> Thunk:
            node = self.model.tree.get(path)
            if node is not None and watch is not None:
                self.model.tree.watch_node(path, self._session, watch)
            return lambda: done(StoreResult.OK if node is not None else StoreResult.NO_NODE, node)

        self._read(read, lambda result: done(result, None))

    def exists(self, path: str, done: Callable[[StoreResult], object], *, watch: Watch | None = None) -> None:
        def read() -> Thunk:
            if watch is not None:
                self.model.tree.watch_node(path, self._session, watch)
            result = StoreResult.OK if self.model.tree.get(path) is not None else StoreResult.NO_NODE
            return lambda: done(result)

        self._read(read, done)

    def children(self, path: str, done: Callable[[StoreResult, list[str]], object], *, watch: Watch | None = None) -> None:
        def read() -> Thunk:
            if self.model.tree.get(path) is None:
                return lambda: done(StoreResult.NO_NODE, [])
            if watch is not None:
                self.model.tree.watch_children(path, self._session, watch)
            names = self.model.tree.children(path)
            return lambda: done(StoreResult.OK, names)

        self._read(read, lambda result: done(result, []))

    def multi(self, operations: Sequence[Operation], done: Callable[[Outcome], object]) -> None:
        wanted = list(operations)
        if self._held is not None:
            self._held.append(lambda: self._write(wanted, done))
        else:
            self._write(wanted, done)

    def listen(self, listener: Callable[[SessionEvent], object]) -> None:
        self._listeners.append(listener)

    def is_connected(self) -> bool:
        return self._is_connected and not self._is_over

    def session_id(self) -> int:
        return self._session

    def lease_ends_ms(self) -> float:
        return inf if self._lease is None else self._answered_sent_ms + self._lease.session_timeout_ms

    def close(self) -> None:
        self._is_over = True
        self.model.end(self._session)

    # Faults

    def fail_next(self, result: StoreResult, *, is_applied: bool = False, is_late: bool = False) -> None:
        """Refuses the next write; with `is_applied` it happens and only its answer is lost, with `is_late` it happens afterwards."""
        self._failure = (result, is_applied)
        self._is_failure_late = is_late

    def fail_next_read(self, result: StoreResult = StoreResult.CONNECTION_LOST) -> None:
        self._read_failure = result

    def disconnect(self, *, is_applied: bool = False) -> None:
        """Breaks the connection: answers in flight are lost, and writes that have not reached the server may or may not be executed."""
        self._is_connected = False
        under_way, self._under_way = self._under_way, []
        for request in under_way:
            if request.is_write and is_applied and not request.is_executed:
                request.execute()
        for watch in self.model.tree.take_watches(self._session):
            self._answer(lambda watch=watch: watch(WatchEvent.LOST))  # type: ignore[misc]
        for request in under_way:
            request.is_executed = True
            request.answer(request.lost)
        self._notify(SessionEvent.SUSPENDED)

    def reconnect(self) -> None:
        """Restores the connection, with the same session if it still exists; otherwise the client learns that it has expired."""
        self._is_connected = True
        if self._session in self.model.sessions:
            self._notify(SessionEvent.CONNECTED)
        else:
            self._is_over = True
            self._notify(SessionEvent.EXPIRED)

    def expire(self) -> None:
        """Makes the server end the session; the client learns it immediately if it is connected."""
        watches = self.model.tree.take_watches(self._session)
        self.model.end(self._session)
        if self._is_connected:
            self._is_over = True
            for watch in watches:
                self._answer(lambda watch=watch: watch(WatchEvent.LOST))  # type: ignore[misc]
            self._notify(SessionEvent.EXPIRED)

    def renew(self) -> None:
        """Starts a new session after the expired one; the client uses it from the event on."""
        assert self._is_over, "the session is still alive"
        self._answer(self._begin_session)
        self._notify(SessionEvent.NEW_SESSION)

    def _begin_session(self) -> None:
        self._is_over = False
        self._answered_sent_ms = self._now_ms()
        self._late = []
        self._session = self.model.admit(self)

    def hold(self) -> None:
        """Makes writes wait until `release`."""
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for run in held:
            run()

    # For assertions

    @property
    def multis(self) -> list[list[Operation]]:
        return self.model.multis

    def put(self, path: str, data: bytes) -> None:
        """Writes a node as another program would, with its missing parents."""
        other = self.model.session()
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:depth])
            if self.model.tree.get(above) is None:
                other.multi([Create(above, data if depth == len(parts) else b"")], lambda outcome: None)

    def nodes(self) -> dict[str, StoreNode]:
        return self.model.tree.nodes()

    def lasting_nodes(self) -> dict[str, StoreNode]:
        """Returns the nodes that exist after a restart."""
        return self.model.lasting_nodes()

    def reopened(self) -> MemoryStore:
        """Returns a new store with the persistent nodes of this one."""
        return MemoryStore(model=ZooKeeperModel(self.lasting_nodes(), self.model.tree.sequences(), first_session=self._session + 1))

    # Delivery of requests and answers

    def on_watch(self, watch: Watch, event: WatchEvent) -> None:
        self._answer(lambda: watch(event))

    def _read(self, read: Callable[[], Thunk], failed: Callable[[StoreResult], object]) -> None:
        failure, self._read_failure = self._read_failure, None
        if failure is not None or self._refusal() is not None:
            result = failure if failure is not None else self._refusal() or StoreResult.CONNECTION_LOST
            self._answer(lambda: failed(result))
            return

        session = self._session

        def execute() -> Thunk:
            return read() if session in self.model.sessions else lambda: failed(StoreResult.SESSION_EXPIRED)

        self._send(Request(execute, lambda: failed(StoreResult.CONNECTION_LOST), is_write=False))

    def _write(self, operations: list[Operation], done: Callable[[Outcome], object]) -> None:
        failure, self._failure = self._failure, None
        refusal = self._refusal()
        if refusal is not None:
            self._answer(lambda: done(Outcome(refusal)))
            return
        if failure is not None and not failure[1]:
            if self._is_failure_late:
                self._late.append(operations)
            self._answer(lambda: done(Outcome(failure[0], 0)))
            return

        session = self._session

        def execute() -> Thunk:
            late, self._late = self._late, []
            for earlier in late:
                self.model.apply(earlier, session)
            outcome = self.model.apply(operations, session)
            if failure is not None:
                outcome = Outcome(failure[0], outcome.index)
            return lambda: done(outcome)

        self._send(Request(execute, lambda: done(Outcome(StoreResult.UNKNOWN)), is_write=True))

    def _refusal(self) -> StoreResult | None:
        if self._is_over:
            return StoreResult.SESSION_EXPIRED
        return None if self._is_connected else StoreResult.CONNECTION_LOST

    def _send(self, request: Request) -> None:
        request.sent_ms = self._now_ms()
        if self._timers is None:
            request.execute()()
            self._answered_sent_ms = request.sent_ms
            return
        self._under_way.append(request)
        self._timers.call_later(self._delay_ms(), self._execute_next)

    def _execute_next(self) -> None:
        """Executes the next request in order, whichever timer fires first."""
        request = next((request for request in self._under_way if not request.is_executed), None)
        if request is None:
            return
        request.is_executed = True
        answer = request.execute()
        self._answer(lambda: self._arrive(request, answer))

    def _arrive(self, request: Request, answer: Thunk) -> None:
        if request in self._under_way:
            self._under_way.remove(request)
            if self._session in self.model.sessions:
                self._answered_sent_ms = request.sent_ms
        request.answer(answer)

    def _now_ms(self) -> float:
        return 0 if self._lease is None else self._lease.clock.monotonic_ms()

    def _keep_asking(self, every_ms: float) -> None:
        assert self._timers is not None
        if self.is_connected():
            self._send(Request(lambda: lambda: None, lambda: None, is_write=False))
        self._timers.call_later(every_ms, lambda: self._keep_asking(every_ms))

    def _answer(self, thunk: Thunk) -> None:
        if self._timers is None:
            thunk()
            return
        self._to_client.append(thunk)
        self._timers.call_later(self._delay_ms(), self._deliver_next)

    def _deliver_next(self) -> None:
        self._to_client.popleft()()

    def _notify(self, event: SessionEvent) -> None:
        for listener in list(self._listeners):
            self._answer(lambda listener=listener: listener(event))  # type: ignore[misc]
