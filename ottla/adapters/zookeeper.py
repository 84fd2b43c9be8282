"""The metadata store of a cluster: one session with ZooKeeper, through the library kazoo, which has its own thread.

This module runs on the event loop. Only `_post` and its callers also run in the connection thread (`zookeeper_client.py`): they put
answers, watches and states into an inbox, which the loop empties in order. Before the loop runs, `connect` and `wait` empty it.

- Requests are queued here, and at most `IN_FLIGHT_MAX` of them are given to kazoo at a time. A request that is still in the queue when the
  connection breaks was not sent. - If the connection breaks during a write, its outcome is UNKNOWN if kazoo had serialized it, else
  CONNECTION_LOST. No request is ever sent twice.
- When a connection is lost (SUSPENDED), watches are notified first, then requests fail, and then listeners are called.
- A request is sent every fifth of the session timeout, so that `lease_ends_ms` advances in idle times. kazoo's own pings do not extend the
  lease, because they do not prove that the event loop is running.

With `is_acl_set` only the identity that created a node may change it, and other identities may not read nodes below `sensitive_paths`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import CheckVersion, Exists, GetChildren, GetData, SetData
from kazoo.protocol.serialization import Create as CreateNode
from kazoo.protocol.serialization import Delete as DeleteNode
from kazoo.security import OPEN_ACL_UNSAFE

from ottla.adapters.zookeeper_client import (
    EVENTS,
    NOT_ANSWERED,
    KazooAnswer,
    LinkState,
    Multi,
    TlsFiles,
    ZooKeeperClient,
    ZooKeeperLink,
    creator_acl,
    tls_context,
)
from ottla.base.errors import StoreUnreachable
from ottla.base.immutable import immutable
from ottla.base.ports import (
    MULTI_BYTES_MAX,
    Check,
    Clock,
    Create,
    Delete,
    Operation,
    Outcome,
    SessionEvent,
    Set,
    StoreNode,
    StoreResult,
    TimerHandle,
    Timers,
    Watch,
    operation_bytes,
)

log = logging.getLogger("ottla.zookeeper")

IN_FLIGHT_MAX = 100
"""Requests in kazoo at a time. kazoo wakes its thread by a byte for each, and a few hundred unread bytes would block the event loop."""

DELIVERED_AT_ONCE_MAX = 200
"""Answers, watches and states that are delivered in one iteration of the event loop."""

QUESTIONS_PER_TIMEOUT = 5
END_SECONDS_MAX = 2.0
EPHEMERAL, SEQUENCE = 1, 2

RESULTS: tuple[tuple[type[BaseException], StoreResult], ...] = (
    (NoNodeError, StoreResult.NO_NODE),
    (NodeExistsError, StoreResult.NODE_EXISTS),
    (BadVersionError, StoreResult.BAD_VERSION),
    (NotEmptyError, StoreResult.NOT_EMPTY),
    (NoChildrenForEphemeralsError, StoreResult.EPHEMERAL_PARENT),
    (SessionExpiredError, StoreResult.SESSION_EXPIRED),
    (SessionMovedError, StoreResult.CONNECTION_LOST),
)


@immutable(kw_only=True)
class ZooKeeperOptions:
    """How to connect to ZooKeeper. `digest` is `user:password`; `login` is user and password for SASL. If ACLs are set, other identities
    may not read nodes below `sensitive_paths`.
    """

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""
    session_timeout_ms: int = 18_000
    is_acl_set: bool = False
    digest: str | None = None
    login: tuple[str, str] | None = None
    tls: TlsFiles | None = None
    sensitive_paths: tuple[str, ...] = ()

    @property
    def hosts(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)


@dataclass(slots=True)
class _Request:
    """A request in the queue or in flight. `done(value, error)` gets kazoo's result, also for a lost connection. `failed(result)` is called
    instead if kazoo never got the request."""

    message: Any
    done: Callable[[Any, BaseException | None], object]
    failed: Callable[[StoreResult], object]
    sent_ms: float = -inf


class ZooKeeperStore:
    """`ports.MetadataStore`."""

    def __init__(
        self, options: ZooKeeperOptions, *, clock: Clock, timers: Timers, call_on_loop: Callable[[Callable[[], object]], object]
    ) -> None:
        """`call_on_loop` must be callable from any thread. Raises `StoreUnreachable` for unusable TLS files."""
        self.disconnects = self.expiries = self.connects = 0
        self._options = options
        self._clock = clock
        self._timers = timers
        self._call_on_loop = call_on_loop
        self._inbox: deque[Callable[[], object]] = deque()
        self._has_arrived = threading.Event()
        self._is_delivery_due = False
        self._waiting: deque[_Request] = deque()
        self._in_flight = 0
        self._link: ZooKeeperLink | None = None
        self._session_id = 0
        self._is_over = self._is_closed = False
        self._failure = ""
        self._answered_sent_ms = -inf
        self._timeout_ms = options.session_timeout_ms
        self._question: TimerHandle | None = None
        self._listeners: list[Callable[[SessionEvent], object]] = []
        try:
            tls = tls_context(options.tls) if options.tls is not None else None
        except OSError as error:
            raise StoreUnreachable(f"zookeeper.ssl: {error}") from None
        self._client = ZooKeeperClient(
            options.hosts, session_timeout_ms=options.session_timeout_ms, digest=options.digest, login=options.login,
            tls=tls, now_ms=clock.monotonic_ms, on_link=lambda state, link: self._post(partial(self._on_link, state, link)),
            on_refusal=lambda: self._post(lambda: None), on_thread_end=lambda error: self._post(partial(self._on_thread_end, error)),
        )  # fmt: skip

    # Before the loop runs

    def connect(self, timeout_ms: int) -> None:
        """Opens the session, and creates the chroot if it is missing. Raises `StoreUnreachable`, immediately if the login is refused."""
        end = time.monotonic() + timeout_ms / 1000
        self._client.start_async()
        self._empty_inbox_until(lambda: self.is_connected() or bool(self._client.refusal or self._failure), end)
        if reason := self._client.refusal or self._failure:
            self.close()
            raise StoreUnreachable(f"no session with ZooKeeper at {self._options.hosts}: {reason}")
        if not self.is_connected():
            self.close()
            reason = "it must be running, have a quorum of its servers, and take writes"
            raise StoreUnreachable(f"no session with ZooKeeper at {self._options.hosts} within {timeout_ms} ms: {reason}")
        outcome = self._make_chroot(end)
        if outcome is not StoreResult.OK:
            self.close()
            chroot = self._options.chroot
            raise StoreUnreachable(f"ZooKeeper at {self._options.hosts} does not let this broker make {chroot}: {outcome.name}")

    def wait(self, is_done: Callable[[], bool], timeout_ms: int) -> bool:
        """Delivers answers until `is_done` returns True; returns False after the timeout. Only before the loop runs."""
        return self._empty_inbox_until(is_done, time.monotonic() + timeout_ms / 1000)

    def _make_chroot(self, end: float) -> StoreResult:
        parts = self._options.chroot.strip("/").split("/") if self._options.chroot else []
        for depth in range(1, len(parts) + 1):
            path = "/" + "/".join(parts[:depth])
            results: list[StoreResult] = []
            message = Multi([CreateNode(path, b"", self._acl(path), 0)])
            self._ask(message, lambda value, error: results.append(_outcome(value, error, message).result), results.append)  # noqa: B023
            self._empty_inbox_until(lambda: bool(results), end)  # noqa: B023
            if not results:
                return StoreResult.CONNECTION_LOST
            if results[0] not in (StoreResult.OK, StoreResult.NODE_EXISTS):
                return results[0]
        return StoreResult.OK

    def _empty_inbox_until(self, is_done: Callable[[], bool], end: float) -> bool:
        while True:
            self._has_arrived.clear()
            self._deliver()
            if is_done():
                return True
            if time.monotonic() > end:
                return False
            if not self._inbox and not self._has_arrived.wait(max(0, end - time.monotonic())):
                return False

    # The port

    def get(self, path: str, done: Callable[[StoreResult, StoreNode | None], object], *, watch: Watch | None = None) -> None:
        def answered(value: Any, error: BaseException | None) -> None:
            if error is not None:
                done(_read_result(error), None)
            else:
                data, stat = value
                done(
                    StoreResult.OK,
                    StoreNode(data=data or b"", version=stat.version, czxid=stat.czxid, ephemeral_owner=stat.ephemeralOwner),
                )

        self._ask(GetData(self._full(path), self._watcher(watch)), answered, lambda result: done(result, None))

    def exists(self, path: str, done: Callable[[StoreResult], object], *, watch: Watch | None = None) -> None:
        def answered(value: Any, error: BaseException | None) -> None:
            if error is not None:
                done(_read_result(error))
            else:
                done(StoreResult.OK if value is not None else StoreResult.NO_NODE)

        self._ask(Exists(self._full(path), self._watcher(watch)), answered, done)

    def children(self, path: str, done: Callable[[StoreResult, list[str]], object], *, watch: Watch | None = None) -> None:
        def answered(value: Any, error: BaseException | None) -> None:
            if error is not None:
                done(_read_result(error), [])
            else:
                done(StoreResult.OK, sorted(value))

        self._ask(GetChildren(self._full(path), self._watcher(watch)), answered, lambda result: done(result, []))

    def multi(self, operations: Sequence[Operation], done: Callable[[Outcome], object]) -> None:
        if sum(map(operation_bytes, operations)) > MULTI_BYTES_MAX:
            self._post(lambda: done(Outcome(StoreResult.TOO_LARGE)))
            return
        message = Multi([self._operation(operation) for operation in operations])
        cut = len(self._options.chroot)

        def answered(value: Any, error: BaseException | None) -> None:
            outcome = _outcome(value, error, message)
            done(Outcome(outcome.result, outcome.index, tuple(path[cut:] for path in outcome.created)) if cut else outcome)

        self._ask(message, answered, lambda result: done(Outcome(result)))

    def listen(self, listener: Callable[[SessionEvent], object]) -> None:
        self._listeners.append(listener)

    def is_connected(self) -> bool:
        return self._link is not None

    def session_id(self) -> int:
        return self._session_id

    def lease_ends_ms(self) -> float:
        return self._answered_sent_ms + self._timeout_ms

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = self._is_over = True
            self._link = None
            self._stop_asking()
            self._fail_waiting(StoreResult.SESSION_EXPIRED)
            self._client.end(END_SECONDS_MAX)

    # Requests

    def _ask(self, message: Any, done: Callable[[Any, BaseException | None], object], failed: Callable[[StoreResult], object]) -> None:
        if self._link is None:
            self._post(lambda: failed(StoreResult.SESSION_EXPIRED if self._is_over else StoreResult.CONNECTION_LOST))
            return
        self._waiting.append(_Request(message, done, failed))
        self._hand_over()

    def _hand_over(self) -> None:
        """Gives kazoo the next requests, up to `IN_FLIGHT_MAX`. Stops if the connection is lost: `_on_link` then fails the requests
        left."""
        link = self._link
        while link is not None and self._waiting and self._in_flight < IN_FLIGHT_MAX:
            request = self._waiting[0]
            request.sent_ms = self._clock.monotonic_ms()
            if not self._client.hand_over(request.message, KazooAnswer(partial(self._on_settled, request)), link.number):
                return
            self._waiting.popleft()
            self._in_flight += 1

    def _on_settled(self, request: _Request, value: Any, error: BaseException | None) -> None:
        """Posts the result of a request to the loop. Called in the connection thread."""
        self._post(partial(self._on_answer, request, value, error))

    def _on_answer(self, request: _Request, value: Any, error: BaseException | None) -> None:
        self._in_flight -= 1
        if not isinstance(error, NOT_ANSWERED):
            self._answered_sent_ms = max(self._answered_sent_ms, request.sent_ms)
        request.done(value, error)
        self._hand_over()

    def _fail_waiting(self, result: StoreResult) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.failed(result)

    # The session

    def _on_link(self, state: LinkState, link: ZooKeeperLink | None) -> None:
        if self._is_closed:
            return
        if state is LinkState.UP:
            assert link is not None
            self._on_up(link)
            return
        was_connected, self._link = self._link is not None, None
        self._stop_asking()
        self._fail_waiting(StoreResult.CONNECTION_LOST)
        if was_connected:
            self.disconnects += 1
            log.warning("the connection to ZooKeeper is lost; trying again")
            self._notify(SessionEvent.SUSPENDED)
        if state is LinkState.EXPIRED and self._session_id and not self._is_over:
            self._is_over = True
            self.expiries += 1
            log.warning("the session with ZooKeeper has expired")
            self._notify(SessionEvent.EXPIRED)

    def _on_up(self, link: ZooKeeperLink) -> None:
        self.connects += 1
        is_first, is_new = not self._session_id, link.session_id != self._session_id
        if is_new:
            self._answered_sent_ms = link.asked_ms
        self._link, self._session_id, self._timeout_ms, self._is_over = link, link.session_id, link.timeout_ms, False
        log.info("connected to ZooKeeper, session 0x%x, timeout %d ms", link.session_id & (1 << 64) - 1, link.timeout_ms)
        self._notify(SessionEvent.NEW_SESSION if is_new and not is_first else SessionEvent.CONNECTED)
        self._keep_asking()

    def _on_thread_end(self, error: BaseException | None) -> None:
        """Makes `connect` fail. If there was a session, ends the broker by an assertion: without the connection thread the broker would
        continue to serve, but never register again."""
        if self._is_closed:
            return
        self._failure = "it has refused the identity of this broker" if error is None else f"the connection thread has ended: {error!r}"
        assert not self._session_id, f"ZooKeeper at {self._options.hosts}: {self._failure}"

    def _notify(self, event: SessionEvent) -> None:
        for listener in list(self._listeners):
            listener(event)

    def _keep_asking(self) -> None:
        if self._link is not None:
            self._ask(Exists("/", None), lambda value, error: None, lambda result: None)
            self._question = self._timers.call_later(self._timeout_ms / QUESTIONS_PER_TIMEOUT, self._keep_asking)

    def _stop_asking(self) -> None:
        if self._question is not None:
            self._question.cancel()
            self._question = None

    # The inbox

    def _post(self, thunk: Callable[[], object]) -> None:
        """Queues a function to run on the loop, in the order of posting. May be called in any thread."""
        self._inbox.append(thunk)
        self._has_arrived.set()
        self._wake()

    def _wake(self) -> None:
        if self._is_delivery_due:
            return
        self._is_delivery_due = True
        try:
            self._call_on_loop(self._deliver)
        except RuntimeError:
            return  # the loop is closed

    def _deliver(self) -> None:
        """Runs at most `DELIVERED_AT_ONCE_MAX` functions of the inbox; the rest runs in the next iteration. The loop handles their
        exceptions."""
        self._is_delivery_due = False
        try:
            for _ in range(min(len(self._inbox), DELIVERED_AT_ONCE_MAX)):
                self._inbox.popleft()()
        finally:
            if self._inbox:
                self._wake()

    # Forms

    def _full(self, path: str) -> str:
        return self._options.chroot + path if path != "/" else self._options.chroot or "/"

    def _watcher(self, watch: Watch | None) -> Callable[[Any], object] | None:
        if watch is None:
            return None
        return lambda event: self._post(partial(watch, EVENTS[event.type]))

    def _operation(self, operation: Operation) -> Any:
        path = self._full(operation.path)
        if isinstance(operation, Create):
            flags = (EPHEMERAL if operation.ephemeral else 0) | (SEQUENCE if operation.is_sequential else 0)
            return CreateNode(path, operation.data, self._acl(operation.path), flags)
        if isinstance(operation, Set):
            return SetData(path, operation.data, operation.version)
        if isinstance(operation, Delete):
            return DeleteNode(path, operation.version)
        assert isinstance(operation, Check)
        return CheckVersion(path, operation.version)

    def _acl(self, path: str) -> Any:
        if not self._options.is_acl_set:
            return OPEN_ACL_UNSAFE
        return creator_acl(path, self._options.sensitive_paths)


def _read_result(error: BaseException) -> StoreResult:
    """Returns the result of a failed read. Only an answer of the server may mean that a node is missing."""
    for kind, result in RESULTS:
        if isinstance(error, kind):
            return result
    is_refusal = isinstance(error, ZookeeperError) and not isinstance(error, (OperationTimeoutError, *NOT_ANSWERED))
    return StoreResult.REFUSED if is_refusal else StoreResult.CONNECTION_LOST


def _outcome(value: Any, error: BaseException | None, message: Multi) -> Outcome:
    """Returns the outcome of a multi. A lost connection means UNKNOWN if the multi was sent."""
    if error is not None:
        if isinstance(error, NOT_ANSWERED) and not isinstance(error, SessionMovedError):
            return Outcome(StoreResult.UNKNOWN if message.is_sent else StoreResult.CONNECTION_LOST)
        result = _read_result(error)
        is_unclear = result is StoreResult.CONNECTION_LOST and message.is_sent and not isinstance(error, SessionMovedError)
        return Outcome(StoreResult.UNKNOWN if is_unclear else result)
    for index, part in enumerate(value):
        if isinstance(part, BaseException) and not isinstance(part, (RolledBackError, RuntimeInconsistency)):
            return Outcome(_read_result(part), index)
    return Outcome(StoreResult.OK, created=tuple(part for part in value if isinstance(part, str)))
