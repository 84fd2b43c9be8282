"""Finds the leaders of a producer's or consumer's partitions and connects to them, without waiting for a silent broker.

Looking up leaders, opening connections and logging in again each run as a background call in a thread (`blocking/background_calls.py`).
Only the partitions that need its result wait for that call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.background_calls import BackgroundCalls, fail
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection, first_ready
from ottla.client.blocking.interruptions import Change
from ottla.client.errors import ConnectError, KafkaError, MalformedResponseError, RequestTimeoutError, TransportError
from ottla.wire.schema import Request

LEADERS = ("leaders",)
"""The key of the background call that looks up leaders. The key of a background call that opens a connection is the broker's id."""

Failed = Callable[[KafkaError | TransportError], object]
"""A function that gets the error of a background call."""

PAUSE_S = 0.05
"""Time before a consumer fetches a partition again after a failure, in seconds."""


def is_away(error: KafkaError | TransportError) -> bool:
    """Whether an error means that a broker is unreachable now. False if the broker refuses the request."""
    if isinstance(error, KafkaError):
        return error.code is ErrorCode.BROKER_NOT_AVAILABLE
    return not isinstance(error, MalformedResponseError)


class Routes:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self.background_calls = BackgroundCalls()
        self.connections: dict[int, BlockingConnection] = {}
        self._cluster = cluster

    def close(self) -> None:
        """Closes the connections and gives up the background calls. A connection that is being opened is closed as soon as it is open."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        self.background_calls.abandon_all()

    def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        without_leader: Callable[[dict[TopicPartition, KafkaError]], object],
        failed: Failed = fail,
    ) -> dict[int, list[TopicPartition]]:
        """Returns the partitions with known leaders, by leader. A background call looks up the leaders of the others.

        `without_leader` gets the reason for each partition without a leader. `failed` gets the error if no broker can be asked.
        """
        leader_of = self._cluster.metadata.leader_of
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            found.setdefault(max(-1, leader_of(partition)), []).append(partition)
        if unknown := found.pop(-1, None):
            self.background_calls.begin(LEADERS, lambda: self._cluster.leaders(unknown)[1], without_leader, failed)
        return found

    def connection(self, broker_id: int, failed: Failed) -> BlockingConnection | None:
        """Returns a connection that can send a request now. It is separate from the shared one, whose requests must not wait behind Produce
        and Fetch.

        Returns None while the connection is being opened or has unsent bytes, and while a login is due or running. `failed` gets the error
        if opening or the login fails.
        """
        known = self.connections.get(broker_id)
        if known is None or not known.is_open:
            self._begin(broker_id, partial(self._cluster.new_connection, broker_id), failed)
        elif not known.is_login_due:
            return None if known.has_unsent else known
        elif not (known.in_flight or known.has_unsent):
            del self.connections[broker_id]
            self._begin(broker_id, known.login_again, failed)
        return None

    def _begin(self, broker_id: int, call: Callable[[], BlockingConnection], failed: Failed) -> None:
        opened = partial(self.connections.__setitem__, broker_id)
        self.background_calls.begin(broker_id, call, opened, failed, dispose=BlockingConnection.close)


class FetchRoutes(Routes):
    """Routes of a consumer: at most one request in flight to each leader, and a short pause for partitions after a failure."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.pauses: dict[TopicPartition, float] = {}
        """The end of each partition's pause."""
        self.change = Change(self._drop_connections)
        """Encloses all that the owner does with connections and answers."""
        self._asked_at: dict[int, float] = {}

    def close(self) -> None:
        super().close()
        self._asked_at.clear()

    def _drop_connections(self) -> None:
        """Closes the connections: a request may be half sent, or an answer half read."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        self._asked_at.clear()

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight and no background call is running."""
        return not (self._asked_at or self.background_calls.sources())

    def awaits(self, broker_id: int) -> bool:
        return broker_id in self._asked_at

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pauses partitions and forgets their leaders, which are then looked up again."""
        some = list(partitions)
        self.wait_with(some)
        self._cluster.metadata.forget(some)

    def wait_with(self, partitions: Iterable[TopicPartition]) -> None:
        until = time.monotonic() + PAUSE_S
        self.pauses.update((partition, until) for partition in partitions)

    def end_pauses(self) -> None:
        now = time.monotonic()
        self.pauses = {partition: until for partition, until in self.pauses.items() if until > now}

    def post(self, broker_id: int, request: Request) -> None:
        """Begins to send a request on the broker's connection, which `connection` has returned."""
        self.connections[broker_id].post(request)
        self._asked_at[broker_id] = time.monotonic()

    def answers(self, timeout_s: float) -> Iterator[tuple[int, Any]]:
        """Yields the answers that have arrived, or errors in their place, with the broker's id.

        Waits at most `timeout_s` for the first one, or for the end of a background call. Closes a connection on which no answer has arrived
        for the cluster's `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        has_found = False
        while not has_found:
            waiting = {broker_id: self.connections[broker_id] for broker_id in self._asked_at}
            self.change.begin_wait()
            ready = first_ready({**self.background_calls.sources(), **waiting}, max(0.0, deadline - time.monotonic()))
            self.change.end_wait()
            now = time.monotonic()
            has_found = now >= deadline or not ready <= waiting.keys()
            for broker_id, connection in waiting.items():
                answer = self._take(connection) if broker_id in ready else None
                if answer is None and now >= self._asked_at[broker_id] + self._cluster.timeout_s:
                    answer = RequestTimeoutError(f"{connection.address} did not answer within {self._cluster.timeout_s:g} s")
                    connection.close()
                if answer is not None:
                    has_found = True
                    del self._asked_at[broker_id]
                    yield broker_id, answer

    def _take(self, connection: BlockingConnection) -> Any:
        try:
            if connection.has_unsent:
                connection.push()
            return connection.take() if connection.in_flight else ConnectError(f"the connection to {connection.address} is closed")
        except TransportError as error:
            return error

    def receive(self, broker_id: int) -> Any:
        """Waits for the answer to the request in flight and returns it. Raises `TransportError`."""
        del self._asked_at[broker_id]
        return self.connections[broker_id].receive()
