"""The blocking client's cluster: runs the conversations of `client.core` (generators of requests, `core/conversation.py`) on sockets, and
waits for each answer.

The producers, consumers and operations of one client share its cluster; `new_connection` is for requests that would block the others for
long. Threads may share a cluster: a call waits until the call of another thread has ended. An exception in a call, such as one that a
signal handler raises, may leave an answer unread. The next call then closes that connection.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.addresses import Address, parse_addresses
from ottla.client.blocking.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, BlockingConnection
from ottla.client.blocking.owner import CallOwner
from ottla.client.core.cluster import GROUP, TRANSACTION, ClusterCore, nearest_hint
from ottla.client.core.connection import CLIENT_SOFTWARE
from ottla.client.core.conversation import Ask, AskAll, AskRolling, Conversation, Effect, Open, perform_all, within
from ottla.client.core.operation import operation
from ottla.client.errors import RETRIABLE, ClientError

if TYPE_CHECKING:
    from ottla.client.core.ports import Link
    from ottla.client.security import Security

__all__ = ["GROUP", "TRANSACTION", "Cluster", "nearest_hint"]

T = TypeVar("T")
P = ParamSpec("P")


class Cluster:
    """See the module."""

    def __init__(
        self,
        bootstrap: str | Sequence[Address],
        *,
        client_id: str = CLIENT_SOFTWARE,
        timeout_s: float = REQUEST_TIMEOUT_S,
        security: Security | None = None,
        with_extensions: bool = False,
    ) -> None:
        addresses = parse_addresses(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        self.core = ClusterCore(addresses, now=time.monotonic, timeout_s=timeout_s)
        self.owner = CallOwner("client")
        self.metadata = self.core.metadata
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.security = security
        self.with_extensions = with_extensions
        self.times_closed = self._times_closed_before = 0
        """How often the cluster was closed, and how often it had been closed when the current call began."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the shared connections, even during a call of another thread: that call fails instead of opening new ones. The cluster may
        be used again later. Callers of `new_connection` and `own_coordinator_connection` close these connections themselves.
        """
        self.times_closed += 1
        self.core.close()

    # Conversations

    def run(self, conversation: Conversation[T]) -> T:
        """Runs a conversation to its end and returns its result."""
        self.owner.refuse_child()
        with self.owner.lock:
            self._times_closed_before = self.times_closed
            self.core.close_unread()
            return perform_all(conversation, self._perform)

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Ask):
            return _made_here(effect.link).request(effect.body, timeout_s=effect.timeout_s, version=effect.version)
        if isinstance(effect, AskAll):
            return self._ask_all(effect)
        if isinstance(effect, AskRolling):
            return self._ask_rolling(effect)
        if isinstance(effect, Open):
            return self._open_shared(effect)
        time.sleep(effect.seconds)
        return None

    def _ask_all(self, effect: AskAll) -> list[Any]:
        begun = time.monotonic()
        sent = [self._send(ask, begun) for ask in effect.asks]
        return [self._receive(ask, at) for ask, at in zip(effect.asks, sent, strict=True)]

    def _ask_rolling(self, effect: AskRolling) -> None:
        under_way: deque[tuple[Ask, float | ClientError]] = deque()
        for ask in effect.asks:
            if ask is None:
                effect.note(self._receive(*under_way.popleft()))
            else:
                under_way.append((ask, self._send(ask, time.monotonic())))
        while under_way:
            effect.note(self._receive(*under_way.popleft()))

    def _send(self, ask: Ask, begun: float) -> float | ClientError:
        """Sends a request, until its timeout after `begun`. Returns the end of the timeout in monotonic seconds, or the error."""
        end = begun + (self.timeout_s if ask.timeout_s is None else ask.timeout_s)
        try:
            _made_here(ask.link).send(ask.body, version=ask.version, timeout_s=max(0.0, end - time.monotonic()))
        except ClientError as error:
            return error
        return end

    def _receive(self, ask: Ask, end: float | ClientError) -> Any:
        """Waits for the answer until `end`, which is counted from the sending. Therefore the timeouts of several silent brokers do not add
        up.
        """
        if isinstance(end, ClientError):
            return end
        try:
            return _made_here(ask.link).receive(max(0.0, end - time.monotonic()))
        except ClientError as error:
            return error

    def _open_shared(self, effect: Open) -> BlockingConnection:
        opened = self._open(effect.address, effect.timeout_s)
        if self.times_closed != self._times_closed_before:
            opened.close()
            raise ClientError(f"the client was closed before it reached {effect.address}")
        return opened

    def _open(self, address: Address, timeout_s: float | None = None) -> BlockingConnection:
        return BlockingConnection(
            address,
            client_id=self.client_id,
            connect_timeout_s=min(CONNECT_TIMEOUT_S, self.timeout_s),
            request_timeout_s=self.timeout_s,
            security=self.security,
            with_extensions=self.with_extensions,
        ).open(timeout_s)

    def retrying(self, attempt: Callable[[], T], *, codes: frozenset[ErrorCode] = RETRIABLE, timeout_s: float | None = None) -> T:
        """Calls a function until it succeeds, fails with a permanent error, or the time is over (`ClusterCore.retrying`)."""

        def once() -> Conversation[T]:
            yield from ()
            return attempt()

        return self.run(self.core.retrying(once, codes=codes, timeout_s=timeout_s))

    # Connections

    def any_connection(self) -> BlockingConnection:
        return _made_here(self.run(self.core.any_link()))

    def connection(self, broker_id: int) -> BlockingConnection:
        return _made_here(self.run(self.core.link(broker_id)))

    def own_coordinator_connection(self, kind: int, key: str) -> BlockingConnection:
        """Returns a separate connection to the coordinator of `key`. The caller closes the connection."""
        return _made_here(self.run(self.core.coordinator_link(kind, key, is_own=True)))

    def new_connection(self, broker_id: int, timeout_s: float | None = None) -> BlockingConnection:
        """Opens a separate connection within `timeout_s` (default: the cluster's), which the caller closes. Does not wait for other threads
        if the broker's address is known.
        """
        known = self.metadata.brokers.get(broker_id)
        deadline = self.core.deadline(timeout_s)
        return self._open(self.run(within(self.core.address_of(broker_id), deadline)) if known is None else known, deadline.left_s())

    def borrowed_connection(self, broker_id: int, timeout_s: float | None = None) -> BlockingConnection:
        """Returns an idle connection that `give_back` has kept, else a new one. The caller closes it or gives it back."""
        self.owner.refuse_child()
        known = self.metadata.brokers.get(broker_id)
        idle = None if known is None else self.core.take_idle(known)
        return self.new_connection(broker_id, timeout_s) if idle is None else _made_here(idle)

    def give_back(self, connection: BlockingConnection, times_closed: int) -> None:
        """Keeps a connection of `borrowed_connection`. Closes it if it has an unread answer, or if the cluster was closed since the caller
        has read `times_closed`."""
        if times_closed != self.times_closed:
            connection.close()
        else:
            self.core.give_back([connection])

    # Metadata of the cluster

    refresh = operation(ClusterCore.refresh)
    topic = operation(ClusterCore.topic)
    unknown_topic = operation(ClusterCore.unknown_topic)
    topic_names = operation(ClusterCore.topic_names)
    partitions = operation(ClusterCore.partitions)

    def leader(self, partition: TopicPartition) -> int:
        known = self.metadata.leader_of(partition)
        return known if known >= 0 else self.run(self.core.leader(partition))

    by_leader = operation(ClusterCore.by_leader)
    leaders = operation(ClusterCore.leaders)

    coordinator = operation(ClusterCore.coordinator)
    ask_once = operation(ClusterCore.ask_once)

    def forget_coordinator(self, kind: int, key: str) -> None:
        self.core.forget_coordinator(kind, key)

    # Asking

    ask_any = operation(ClusterCore.ask_any)
    ask_broker = operation(ClusterCore.ask_broker)
    ask_controller = operation(ClusterCore.ask_controller)
    ask_coordinator = operation(ClusterCore.ask_coordinator)


def _made_here(link: Link) -> BlockingConnection:
    assert isinstance(link, BlockingConnection), "this shell has made every connection"
    return link
