"""Reads a range of offsets of one partition from its leader. The next Fetch is in flight while the caller uses the last result."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.core.backoff import Backoff, Deadline
from ottla.client.core.conversation import within
from ottla.client.core.fetching import FETCH_BYTES_MAX, MAX_WAIT_MS, Fetched, FetchLimits, fetch_request, read_answer
from ottla.client.errors import KafkaError, MalformedResponseError, RequestTimeoutError, TransportError

READ_BYTES = 8 * 1024 * 1024


class RangeReader:
    """See the module. It has a separate connection, so a waiting Fetch delays no other request. Later readers use this connection again."""

    def __init__(self, cluster: Cluster, partition: TopicPartition, *, isolation_level: int, partition_max_bytes: int) -> None:
        self._cluster = cluster
        self._partition = partition
        self._isolation_level = isolation_level
        self._limits = FetchLimits(MAX_WAIT_MS, 1, max(FETCH_BYTES_MAX, partition_max_bytes), partition_max_bytes)
        self._connection: BlockingConnection | None = None
        self._times_closed = cluster.times_closed

    def end(self) -> None:
        """Returns the connection to the client for the next reader, or closes it, if a Fetch is in flight."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._cluster.give_back(connection, self._times_closed)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read(self, start: int, end: int, timeout_s: float) -> Iterator[Fetched]:
        """Yields the batches from `start` on until the position reaches `end`. After `timeout_s` without progress it raises
        `RequestTimeoutError` or the last error. The time that the caller needs for a batch is not included.
        """
        position = start
        deadline = Deadline(timeout_s, time.monotonic)
        backoff = Backoff(deadline)
        while position < end:
            try:
                fetched = self._receive(position, deadline)
            except (KafkaError, TransportError) as error:
                self._pause_or_raise(error, backoff)
                continue
            if fetched.next_offset == position:
                if deadline.left_s() < 0:
                    raise RequestTimeoutError(f"no records of {self._partition} at offset {position}; the range to read ends at {end}")
                continue
            position = fetched.next_offset
            deadline.renew()
            if position < end:
                self._send_ahead(position, deadline)
            yield fetched
            deadline.renew()
            backoff = Backoff(deadline)

    def _receive(self, position: int, deadline: Deadline) -> Fetched:
        connection = self._connection
        if connection is None or not connection.in_flight:
            connection = self._send(position, deadline)
        answer = connection.receive(self._left_s(deadline))
        for found in read_answer({self._partition: position}, answer, self._isolation_level, str(connection.address)):
            if isinstance(found, Fetched):
                return found
            raise found[1]
        raise MalformedResponseError(f"{connection.address} left {self._partition} out of its answer")

    def _send(self, position: int, deadline: Deadline) -> BlockingConnection:
        connection = self._connection
        if connection is None or not connection.is_open:
            leader = self._cluster.run(within(self._cluster.core.leader(self._partition), deadline))
            connection = self._connection = self._cluster.borrowed_connection(leader, self._left_s(deadline))
        limits = self._limits._replace(max_wait_ms=min(MAX_WAIT_MS, deadline.left_ms()))
        request = fetch_request({self._partition: position}, self._isolation_level, limits)
        connection.send(request, timeout_s=self._left_s(deadline))
        return connection

    def _left_s(self, deadline: Deadline) -> float:
        """Returns the time limit of one step, in seconds."""
        return max(0.0, min(deadline.left_s(), self._cluster.timeout_s))

    def _send_ahead(self, position: int, deadline: Deadline) -> None:
        """Sends the next request. An error only closes the connection: the next `_receive` sends the request again."""
        try:
            self._send(position, deadline)
        except (KafkaError, TransportError):
            self.close()

    def _pause_or_raise(self, error: KafkaError | TransportError, backoff: Backoff) -> None:
        """Waits before the next attempt after a retriable error or a lost connection, until the timeout; raises other errors."""
        self.close()
        is_passing = error.is_retriable if isinstance(error, KafkaError) else not isinstance(error, MalformedResponseError)
        if not is_passing or backoff.is_exhausted():
            raise error
        self._cluster.metadata.forget([self._partition])
        time.sleep(backoff.next_s())
