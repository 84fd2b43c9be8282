"""The way from the partitions of a producer or consumer to its own connections, without waiting for a silent broker.

Finding leaders, opening connections and logging in again take answers of brokers. Each of these runs as an errand, in a thread of its own
(`blocking/errand.py`). The partitions concerned wait for its end, and no other partition does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection, first_ready
from ottla.client.blocking.errand import Errands, fail
from ottla.client.errors import ConnectError, KafkaError, MalformedResponseError, RequestTimeoutError, TransportError
from ottla.wire.schema import Request

LEADERS = ("leaders",)
"""The key of the errand that looks for leaders. Errands that open a connection have the broker's id."""

Failed = Callable[[KafkaError | TransportError], object]
"""Gets the error of an errand."""

PAUSE_S = 0.05
"""How long a consumer waits with a partition after a failure."""


def is_away(error: KafkaError | TransportError) -> bool:
    """Whether an error means that a broker cannot be reached now, rather than that it answers and refuses."""
    if isinstance(error, KafkaError):
        return error.code is ErrorCode.BROKER_NOT_AVAILABLE
    return not isinstance(error, MalformedResponseError)


class Routes:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self.errands = Errands()
        self.connections: dict[int, BlockingConnection] = {}
        self._cluster = cluster

    def close(self) -> None:
        """Closes the connections. A connection that is being opened is closed as soon as it is open."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        self.errands.abandon_all()

    def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        without_leader: Callable[[dict[TopicPartition, KafkaError]], object],
        failed: Failed = fail,
    ) -> dict[int, list[TopicPartition]]:
        """Returns the partitions with known leaders, by leader. An errand looks for the leaders of the others.

        `without_leader` gets the partitions without a leader, and why. `failed` gets the error if no broker can be asked.
        """
        leader_of = self._cluster.metadata.leader_of
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            found.setdefault(max(-1, leader_of(partition)), []).append(partition)
        if unknown := found.pop(-1, None):
            self.errands.begin(LEADERS, lambda: self._cluster.leaders(unknown)[1], without_leader, failed)
        return found

    def connection(self, broker_id: int, failed: Failed) -> BlockingConnection | None:
        """Returns an own connection that takes a request now. Other requests must not wait behind Produce and Fetch.

        None while it is being opened, logs in again, or has not sent the last request yet. `failed` gets the error if it cannot be opened.
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
        self.errands.begin(broker_id, call, partial(self.connections.__setitem__, broker_id), failed, dispose=BlockingConnection.close)


class FetchRoutes(Routes):
    """Routes of a consumer, which has one request at a time under way to each leader, and waits a moment with partitions that failed."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.pauses: dict[TopicPartition, float] = {}
        """When the pauses of partitions end."""
        self._asked_at: dict[int, float] = {}

    def close(self) -> None:
        super().close()
        self._asked_at.clear()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self._asked_at or self.errands.sources())

    def awaits(self, broker_id: int) -> bool:
        """Whether a request to the broker is under way."""
        return broker_id in self._asked_at

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Waits with partitions, and asks for their leaders again."""
        some = list(partitions)
        self.wait_with(some)
        self._cluster.forget(some)

    def wait_with(self, partitions: Iterable[TopicPartition]) -> None:
        until = time.monotonic() + PAUSE_S
        self.pauses.update((partition, until) for partition in partitions)

    def end_pauses(self) -> None:
        """Forgets the pauses that are over."""
        now = time.monotonic()
        self.pauses = {partition: until for partition, until in self.pauses.items() if until > now}

    def post(self, broker_id: int, request: Request) -> None:
        """Begins to send a request on the broker's connection, which `connection` has returned."""
        self.connections[broker_id].post(request)
        self._asked_at[broker_id] = time.monotonic()

    def answers(self, timeout_s: float) -> Iterator[tuple[int, Any]]:
        """The answers that have arrived, by broker, or errors in their place.

        Waits at most `timeout_s` until there is one, or an errand has ended.
        """
        deadline = time.monotonic() + timeout_s
        has_found = False
        while not has_found:
            waiting = {broker_id: self.connections[broker_id] for broker_id in self._asked_at}
            ready = first_ready({**self.errands.sources(), **waiting}, max(0.0, deadline - time.monotonic()))
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
        """Waits for the answer to the request under way."""
        del self._asked_at[broker_id]
        return self.connections[broker_id].receive()
