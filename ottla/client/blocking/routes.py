"""The way from a producer's partitions to its connections, without waiting for a silent broker.

Finding leaders, opening connections, logging in again and adding partitions to a transaction take answers of brokers. Each of these runs as
an errand, in a thread of its own (`blocking/errand.py`). The partitions concerned wait for its end, and no other partition does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import Connection, Source
from ottla.client.blocking.errand import Errand
from ottla.client.blocking.producer_identity import ProducerIdentity
from ottla.client.core.send_queue import SendQueue
from ottla.client.errors import KafkaError, TransportError

_LEADERS = ("leaders",)
_TRANSACTION = ("transaction",)


class Routes:
    """See the module. `identity`: of a transactional producer. Partitions that cannot be sent to are reported to the queue, and pause."""

    def __init__(self, cluster: Cluster, queue: SendQueue, identity: ProducerIdentity | None) -> None:
        self.connections: dict[int, Connection] = {}
        self._cluster = cluster
        self._queue = queue
        self._identity = identity
        self._errands: dict[Hashable, Errand[Any]] = {}
        """The errands that have not been taken in, by broker id for connections, by name for topics."""

    def sources(self) -> dict[Hashable, Source]:
        """The errands, whose ends change what can be sent."""
        return dict(self._errands)

    def close(self) -> None:
        """Closes the connections. A connection that is being opened is closed as soon as it is open."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        for errand in self._errands.values():
            errand.abandon()
        self._errands.clear()

    def by_leader(self, partitions: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Returns the partitions that can be sent to now, by their leaders. Errands begin for the others."""
        leader_of = self._cluster.metadata.leader_of
        known = [partition for partition in partitions if leader_of(partition) >= 0]
        if len(known) < len(partitions):
            unknown = [partition for partition in partitions if leader_of(partition) < 0]
            self._begin(_LEADERS, partial(self._cluster.leaders, unknown))
        if self._identity is not None:
            known = self._in_transaction(self._identity, known)
        found: dict[int, list[TopicPartition]] = {}
        for partition in known:
            found.setdefault(leader_of(partition), []).append(partition)
        return found

    def connection(self, broker_id: int) -> Connection | None:
        """Returns a connection of the producer's own that takes a request now. Produce requests must not hold up other requests.

        None while it is being opened, logs in again, or has not sent the last request yet.
        """
        known = self.connections.get(broker_id)
        if known is None or not known.is_open:
            self._begin(broker_id, partial(self._cluster.new_connection, broker_id), Connection.close)
        elif not known.is_login_due:
            return None if known.has_unsent else known
        elif not (known.in_flight or known.has_unsent):
            del self.connections[broker_id]
            self._begin(broker_id, known.login_again, Connection.close)
        return None

    def look_for_growth(self, topic: str) -> None:
        """Asks how many partitions a topic has. The answer is in the cluster's metadata as soon as it arrives."""
        self._begin(topic, partial(self._cluster.refresh, [topic]))

    @property
    def adds_to_transaction(self) -> bool:
        """Whether an errand adds partitions to the transaction. No other request about the transaction may be sent before its end."""
        return _TRANSACTION in self._errands

    def _in_transaction(self, identity: ProducerIdentity, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Returns the partitions that belong to the open transaction. An errand adds the others."""
        others = identity.not_added(partitions)
        if others:
            self._begin(_TRANSACTION, partial(self._add, identity, others))
        return [partition for partition in partitions if partition not in others]

    def _add(self, identity: ProducerIdentity, partitions: Sequence[TopicPartition]) -> None:
        with self._cluster.owner:
            if identity.is_open:  # else the transaction was abandoned before this thread began
                identity.add(partitions)

    def _begin(self, key: Hashable, call: Callable[[], Any], dispose: Callable[[Any], object] = lambda _: None) -> None:
        if key not in self._errands:
            self._errands[key] = Errand(call, dispose)

    # The ends of errands

    def take_in(self, now: float) -> None:
        """Takes the results of the errands that have ended."""
        for key in [key for key, errand in self._errands.items() if errand.has_input()]:
            errand = self._errands.pop(key)
            try:
                result = errand.result()
            except (KafkaError, TransportError) as error:
                self._queue.not_sent([partition for partition in self._queue.sendable(now) if self._waits_for(key, partition)], error, now)
                continue
            if key == _LEADERS:
                self._without_leader(result[1], now)
            elif isinstance(key, int):
                self.connections[key] = result

    def _waits_for(self, key: Hashable, partition: TopicPartition) -> bool:
        if key == _TRANSACTION:
            return self._identity is not None and bool(self._identity.not_added([partition]))
        leader = self._cluster.metadata.leader_of(partition)
        return leader < 0 if key == _LEADERS else leader == key

    def _without_leader(self, reasons: dict[TopicPartition, KafkaError], now: float) -> None:
        for partition in self._queue.sendable(now):
            if partition in reasons and self._waits_for(_LEADERS, partition):
                self._queue.not_sent([partition], reasons[partition], now)
