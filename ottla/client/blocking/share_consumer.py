"""A consumer of a share group (KIP-932): it acquires records one by one and accepts, releases or rejects each.

`poll` returns the records that brokers have let this consumer acquire. Without `is_explicit` the next `poll` accepts them all; with it,
each record is acknowledged by hand before the next `poll` (a renewed one stays acquired, and is acknowledged again later).
Acknowledgements travel with the next ShareFetch, or at once by `commit`. Records that are not acknowledged at `close`, or for longer than
`lock_timeout_ms`, go to other members; `on_acknowledged` reports an acknowledgement that came too late. There is no thread: a member calls
`poll` more often than the group's session times out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from ottla.base.errors import ErrorCode, WireError, error_code
from ottla.base.types import TopicPartition
from ottla.base.uuids import Uuid
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import Connection, first_ready
from ottla.client.blocking.consumer import topic_names
from ottla.client.blocking.owner import Owner, owned
from ottla.client.blocking.share_membership import ShareMembership
from ottla.client.core.admin import refusal
from ottla.client.core.share_session import ACCEPT, BATCH_OPTIMIZED, FIRST_EPOCH, Delivery, Run, ShareFetchLimits, ShareSession
from ottla.client.errors import RETRIABLE, ConnectError, KafkaError, MalformedResponseError, TransportError, UsageError, refused

MAX_POLL_RECORDS = 500
FETCH_BYTES_MAX = 50 * 1024 * 1024
MAX_WAIT_MS = 500

_BACKOFF_S = 0.05
_BEGIN_ANEW = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED)

Acknowledged = Callable[[TopicPartition, list[Run], KafkaError | None], object]
"""Called for each partition with the acknowledged offsets and the error, if the broker refused them."""


class ShareConsumer:
    """A member of a share group: acquires records one by one and acknowledges them.

    One thread at a time may use it; a forked child may not. The end of `with` ends the membership; after an exception it acknowledges
    nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        is_explicit: bool = False,
        records_max: int = MAX_POLL_RECORDS,
        acquire_mode: int = BATCH_OPTIMIZED,
        min_bytes: int = 1,
        max_bytes: int = FETCH_BYTES_MAX,
        max_wait_ms: int = MAX_WAIT_MS,
        rack: str | None = None,
        on_acknowledged: Acknowledged | None = None,
    ) -> None:
        self.cluster = cluster
        self.owner = Owner("share consumer")
        self.group_id = group_id
        self.is_explicit = is_explicit
        self.limits = ShareFetchLimits(max_wait_ms, min_bytes, max_bytes, records_max, acquire_mode)
        self.rack = rack
        self.lock_timeout_ms: int | None = None
        """For how long a record stays acquired, once a broker has announced it."""
        self.membership: ShareMembership | None = None
        self._on_acknowledged = on_acknowledged
        self._sessions: dict[int, ShareSession] = {}
        self._connections: dict[int, Connection] = {}
        self._asked: set[int] = set()
        self._pauses: dict[TopicPartition, float] = {}
        self._arrived: list[Delivery] = []
        self._holders: dict[TopicPartition, ShareSession] = {}

    def __enter__(self) -> ShareConsumer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None or self.owner.is_in_child:
            self.close()
        else:
            self.abandon()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that the group has assigned."""
        return [] if self.membership is None else sorted(self.membership.assignment)

    @owned
    def subscribe(self, topics: Iterable[str]) -> None:
        """Joins the group with the next `poll`."""
        if self.membership is not None:
            raise UsageError("a share consumer subscribes once")
        self.membership = ShareMembership(self.cluster, self.group_id, topic_names(topics), rack=self.rack)

    # Reading

    @owned
    def poll(self, timeout_s: float) -> list[Delivery]:
        """The records that were acquired, after at most `timeout_s`; empty when there are none."""
        membership = self.membership
        if membership is None:
            raise UsageError("subscribe before polling")
        if not self.is_explicit:
            self._accept_all()
        deadline = time.monotonic() + timeout_s
        while True:
            if membership.keep_alive():
                self._pauses.clear()
            self._send_fetches(membership.assignment)
            left = deadline - time.monotonic()
            self._take_answers(max(0.0, min(left, membership.due_s(), 1.0 if self._asked else _BACKOFF_S)))
            if self._arrived or left <= 0:
                found, self._arrived = self._arrived, []
                return found

    @owned
    def acknowledge(self, delivery: Delivery, kind: int = ACCEPT) -> None:
        """Acknowledges a record; sent with the next fetch or `commit`. `KafkaError` when it is no longer acquired."""
        session = self._holders.get(delivery.partition)
        if session is None or not session.acknowledge(delivery.partition, delivery.record.offset, kind):
            raise refused(ErrorCode.INVALID_RECORD_STATE, f"{delivery.partition} offset {delivery.record.offset} is no longer acquired")

    @owned
    def commit(self) -> None:
        """Sends the acknowledgements now and waits for the answers; without `is_explicit` it accepts everything."""
        if not self.is_explicit:
            self._accept_all()
        for broker_id, session in list(self._sessions.items()):
            if session.acknowledged():
                self._acknowledge_now(broker_id, session)

    def close(self) -> None:
        """Sends the acknowledgements, releases the other records, and ends the membership. In a forked child it only closes its copies."""
        if self.owner.is_in_child:
            self._drop_connections()
        else:
            self._end()

    @owned
    def _end(self) -> None:
        try:
            for broker_id, session in list(self._sessions.items()):
                self._end_session(broker_id, session)
            if self.membership is not None:
                self.membership.leave()
        finally:
            self._drop_connections()

    @owned
    def abandon(self) -> None:
        """Ends the membership without sending acknowledgements: all acquired records are released, acknowledged ones too."""
        self._drop_connections()
        if self.membership is not None:
            self.membership.leave()

    def _accept_all(self) -> None:
        """Accepts what `poll` has returned; records that arrived since then stay open."""
        for session in self._sessions.values():
            session.accept_all()
        for delivery in self._arrived:
            self._holders[delivery.partition].open[delivery.partition][delivery.record.offset] = None

    # ShareFetch

    def _send_fetches(self, assignment: Mapping[TopicPartition, Uuid]) -> None:
        """One ShareFetch for each leader that has none under way."""
        now = time.monotonic()
        ready = [partition for partition in assignment if self._pauses.get(partition, 0.0) <= now]
        try:
            leaders = self.cluster.by_leader(ready)
        except KafkaError as error:
            if error.code not in RETRIABLE:
                raise
            self._pause(ready)
            return
        for broker_id in {**leaders, **self._sessions}:
            if broker_id not in self._asked:
                self._fetch_from(broker_id, {partition: assignment[partition] for partition in leaders.get(broker_id, ())})

    def _fetch_from(self, broker_id: int, wanted: Mapping[TopicPartition, Uuid]) -> None:
        session = self._session(broker_id)
        acknowledged = session.acknowledged()
        if not wanted and not session.partitions and not acknowledged:
            return
        try:
            if session.has_renewals() or any(partition not in wanted for partition in acknowledged):
                self._acknowledge_now(broker_id, session)
            if wanted or session.partitions:
                self._connection(broker_id, session).send(session.fetch_request(wanted, self.limits))
                self._asked.add(broker_id)
        except MalformedResponseError:
            raise
        except TransportError as error:
            self._lose(session, error, wanted)

    def _take_answers(self, timeout_s: float) -> None:
        for broker_id in first_ready({broker_id: self._connections[broker_id] for broker_id in self._asked}, timeout_s):
            self._receive(broker_id)

    def _receive(self, broker_id: int) -> None:
        """Takes the answer to the ShareFetch under way; the acquired records wait for the next `poll`."""
        self._asked.discard(broker_id)
        session, connection = self._sessions[broker_id], self._connections[broker_id]
        try:
            answer = connection.receive()
        except MalformedResponseError:
            raise
        except TransportError as error:
            self._lose(session, error, session.partitions)
            return
        code = error_code(answer.error_code)
        if code:
            self._refuse(session, code, answer.error_message, f"fetching from {connection.address}")
            return
        self.lock_timeout_ms = answer.acquisition_lock_timeout_ms or self.lock_timeout_ms
        for topic in answer.responses:
            for result in topic.partitions:
                partition = session.named(topic.topic_id, result.partition_index)
                if partition is None:
                    continue
                if partition in session.sent:
                    failed = refusal(result.acknowledge_error_code, result.acknowledge_error_message, str(partition))
                    self._report(session, partition, failed)
                if result.error_code:
                    self._recover(partition, error_code(result.error_code), result.error_message)
                    continue
                try:
                    found = session.take(partition, result)
                except WireError as error:
                    raise MalformedResponseError(f"{connection.address}: {error}") from None
                if found:
                    self._holders[partition] = session
                    self._arrived += found
        for partition in list(session.sent):
            self._report(session, partition, None)  # a partition that is left out of the answer has no error

    def _recover(self, partition: TopicPartition, code: ErrorCode, message: str | None) -> None:
        if code not in RETRIABLE:
            raise refused(code, message or f"fetching {partition}")
        self._pause([partition])

    def _pause(self, partitions: Iterable[TopicPartition]) -> None:
        until = time.monotonic() + _BACKOFF_S
        for partition in partitions:
            self._pauses[partition] = until
            self.cluster.forget([partition])

    # ShareAcknowledge

    def _acknowledge_now(self, broker_id: int, session: ShareSession, *, is_final: bool = False) -> None:
        """Sends the acknowledgements and reports each once, also if the connection breaks."""
        try:
            connection = self._connection(broker_id, session)
            if broker_id in self._asked:
                self._receive(broker_id)
            if session.epoch == FIRST_EPOCH:
                return  # the session was lost on the way, and its records with it
            answer = connection.request(session.acknowledge_request(is_final=is_final))
        except MalformedResponseError:
            raise
        except TransportError as error:
            self._lose(session, error, session.partitions)
            return
        code = error_code(answer.error_code)
        if code:
            self._refuse(session, code, answer.error_message, f"acknowledging to {connection.address}")
            return
        self.lock_timeout_ms = answer.acquisition_lock_timeout_ms or self.lock_timeout_ms
        for topic in answer.responses:
            for result in topic.partitions:
                partition = session.named(topic.topic_id, result.partition_index)
                if partition in session.sent:
                    self._report(session, partition, refusal(result.error_code, result.error_message, str(partition)))
        for partition in list(session.sent):
            self._report(session, partition, None)

    def _end_session(self, broker_id: int, session: ShareSession) -> None:
        """Ends the session on an open connection; the broker notices a lost one by itself."""
        connection = self._connections.get(broker_id)
        if connection is None or not connection.is_open or session.epoch == FIRST_EPOCH:
            return
        self._acknowledge_now(broker_id, session, is_final=True)

    # Sessions and their loss

    def _session(self, broker_id: int) -> ShareSession:
        assert self.membership is not None
        return self._sessions.setdefault(broker_id, ShareSession(self.group_id, self.membership.member_id))

    def _connection(self, broker_id: int, session: ShareSession) -> Connection:
        """The connection of a session; a new connection begins a new session."""
        connection = self._connections.get(broker_id)
        if connection is None or not connection.is_open:
            if session.acknowledged():  # they were noted, and the connection was lost before they were sent
                session.acknowledge_request()
            self._lose(session, ConnectError(f"the connection to broker {broker_id} was lost"), session.partitions)
            connection = self._connections[broker_id] = self.cluster.new_connection(broker_id)
        return connection

    def _refuse(self, session: ShareSession, code: ErrorCode, message: str | None, about: str) -> None:
        failed = refused(code, message or about)
        if code not in _BEGIN_ANEW and code not in RETRIABLE:
            raise failed
        self._forfeit(session, failed, session.partitions)

    def _lose(self, session: ShareSession, error: TransportError, partitions: Iterable[TopicPartition]) -> None:
        self._forfeit(session, refused(ErrorCode.NETWORK_EXCEPTION, str(error)), partitions)

    def _forfeit(self, session: ShareSession, error: KafkaError, partitions: Iterable[TopicPartition]) -> None:
        """Ends a lost session: whether its last acknowledgements were applied is unknown, the other records go to other members."""
        self._pause(list(partitions))
        for partition in list(session.sent):
            self._report(session, partition, error)
        self._arrived = [delivery for delivery in self._arrived if self._holders[delivery.partition] is not session]
        session.reset()

    def _report(self, session: ShareSession, partition: TopicPartition, error: KafkaError | None) -> None:
        runs = session.sent.pop(partition)
        if self._on_acknowledged is not None:
            self._on_acknowledged(partition, runs, error)

    def _drop_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._sessions.clear()
        self._asked.clear()
