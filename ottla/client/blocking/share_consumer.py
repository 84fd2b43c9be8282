"""A consumer of a share group (KIP-932): acquires records, and accepts, releases or rejects each of them.

`poll` returns acquired records. Without `is_explicit` the next `poll` or `commit` accepts them all. With `is_explicit` the program calls
`acknowledge` for each record; a renewed record stays acquired and is acknowledged again later. Acknowledgements are sent with the next
fetch, or at once by `commit`. Records that are not acknowledged at `close`, or within `lock_timeout_ms`, are released: the group may
deliver them again. `on_acknowledged` gets the outcome of each acknowledgement, such as the error of a late one.

With `acquire_mode=RECORD_LIMIT` (KIP-1206) one leader at a time is asked, in rotation. Each answer acquires at most `limits.max_records`
records, so a caller that lowers this limit between polls never acquires more records than it wants. A leader without records delays the
next one by `limits.max_wait_ms`. Brokers that support only version 1 of ShareFetch do not know the mode and acquire whole batches.

`poll` waits only for records: heartbeats, and look-ups of leaders and connections, run in threads (`blocking/background_calls.py`). There
is no background heartbeat: a member must call `poll` more often than the group's session times out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

from ottla.base.errors import ErrorCode, WireError, error_code
from ottla.base.types import TopicPartition
from ottla.base.uuids import Uuid
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.blocking.consumer import topic_names
from ottla.client.blocking.owner import CallOwner, owned
from ottla.client.blocking.routes import PAUSE_S, FetchRoutes, is_away
from ottla.client.blocking.share_membership import ShareMembership
from ottla.client.core.admin import refusal
from ottla.client.core.arguments import checked
from ottla.client.core.share_session import (
    ACCEPT,
    BATCH_OPTIMIZED,
    FIRST_EPOCH,
    RECORD_LIMIT,
    AcquiredRecord,
    ConsumerShareSession,
    Run,
    ShareFetchLimits,
)
from ottla.client.errors import ConnectError, KafkaError, MalformedResponseError, TransportError, UsageError, refused
from ottla.wire.messages.share_fetch import ShareFetchResponse
from ottla.wire.schema import Request

P = ParamSpec("P")

MAX_POLL_RECORDS = 500
FETCH_BYTES_MAX = 50 * 1024 * 1024
MAX_WAIT_MS = 500

_MEMBERSHIP = ("membership",)
"""The key of the background call that sends heartbeats."""
_BEGIN_ANEW = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED)

Acknowledged = Callable[[TopicPartition, list[Run], KafkaError | None], object]
"""Called for each partition with the acknowledged offsets, and with the error if they were refused or their outcome is unknown."""


def _delivering(
    poll: Callable[Concatenate[ShareConsumer, P], list[AcquiredRecord]],
) -> Callable[Concatenate[ShareConsumer, P], list[AcquiredRecord]]:
    """Decorates `ShareConsumer.poll`: forgets the records that it returns."""

    @wraps(poll)
    def call(self: ShareConsumer, /, *args: P.args, **kwargs: P.kwargs) -> list[AcquiredRecord]:
        found = poll(self, *args, **kwargs)
        # No call follows before the return: Python runs signal handlers after calls, so their exceptions lose no record.
        self._arrived = []
        return found

    return call


class ShareConsumer:
    """A member of a share group: acquires records and acknowledges them.

    One thread at a time may use it; a forked child may not. `poll(0)` does not wait for any broker. The end of `with` ends the membership;
    after an exception it acknowledges nothing.
    """

    @checked
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
        self.owner = CallOwner("share consumer")
        self.group_id = group_id
        self.is_explicit = is_explicit
        self.limits = ShareFetchLimits(max_wait_ms, min_bytes, max_bytes, records_max, acquire_mode)
        self.rack = rack
        self.lock_timeout_ms: int | None = None
        """For how long a record stays acquired; None before a broker has sent this time."""
        self.membership: ShareMembership | None = None
        self._on_acknowledged = on_acknowledged
        self._sessions: dict[int, ConsumerShareSession] = {}
        self._begun_on: dict[int, BlockingConnection] = {}
        """The connection of each session."""
        self._last_asked = -1
        """With `RECORD_LIMIT`: the broker of the last request."""
        self._routes = FetchRoutes(cluster)
        self._arrived: list[AcquiredRecord] = []
        self._holders: dict[TopicPartition, ConsumerShareSession] = {}

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
        """Subscribes to topics, once. `poll` then joins the group."""
        if self.membership is not None:
            raise UsageError("a share consumer subscribes once")
        self.membership = ShareMembership(self.cluster, self.group_id, topic_names(topics), rack=self.rack)

    # Reading

    @_delivering
    @owned
    def poll(self, timeout_s: float) -> list[AcquiredRecord]:
        """Returns the acquired records, after at most `timeout_s`. The result is empty if there are none."""
        membership = self.membership
        if membership is None:
            raise UsageError("subscribe before polling")
        if not self.is_explicit:
            self._accept_all()
        deadline = time.monotonic() + timeout_s
        with self._routes.change:
            while True:
                self._routes.background_calls.take_in()
                if not membership.due_s():
                    self._routes.background_calls.begin(_MEMBERSHIP, membership.keep_alive, self._take_assignment)
                self._send_fetches(membership.assignment)
                left = deadline - time.monotonic()
                due_s = left if _MEMBERSHIP in self._routes.background_calls else membership.due_s()
                for broker_id, answer in self._routes.answers(max(0.0, min(left, due_s, PAUSE_S if self._routes.is_idle else 1.0))):
                    self._take(broker_id, answer)
                if self._arrived or left <= 0:
                    return self._arrived

    def _take_assignment(self, is_another: bool) -> None:
        if is_another:
            self._routes.pauses.clear()

    @owned
    def acknowledge(self, delivery: AcquiredRecord, kind: int = ACCEPT) -> None:
        """Acknowledges a record. The next fetch or `commit` sends the acknowledgement. Raises `KafkaError` if the record is no longer
        acquired.
        """
        session = self._holders.get(delivery.partition)
        if session is None or not session.acknowledge(delivery.partition, delivery.record.offset, kind):
            raise refused(ErrorCode.INVALID_RECORD_STATE, f"{delivery.partition} offset {delivery.record.offset} is no longer acquired")

    @owned
    def commit(self) -> None:
        """Sends the acknowledgements now and waits for the answers. Without `is_explicit` it first accepts all records that `poll` has
        returned.
        """
        if not self.is_explicit:
            self._accept_all()
        with self._routes.change:
            for broker_id, session in list(self._sessions.items()):
                if session.acknowledged():
                    self._acknowledge_now(broker_id, session)

    @checked
    def close(self) -> None:
        """Sends the acknowledgements, releases the other records, and ends the membership. In a forked child it only closes the inherited
        sockets.
        """
        if self.owner.is_in_child:
            self._drop_connections()
        else:
            self._end()

    @owned
    def _end(self) -> None:
        try:
            with self._routes.change:
                for broker_id, session in list(self._sessions.items()):
                    if session.epoch != FIRST_EPOCH:
                        self._acknowledge_now(broker_id, session, is_final=True)
            self._leave()
        finally:
            self._drop_connections()

    @owned
    def abandon(self) -> None:
        """Ends the membership without sending or reporting acknowledgements. The broker releases all acquired records, also those with an
        unsent acknowledgement.
        """
        try:
            self._leave()
        finally:
            self._drop_connections()

    def _leave(self) -> None:
        if self.membership is not None:
            self.membership.leave(interrupts=_MEMBERSHIP in self._routes.background_calls)

    def _accept_all(self) -> None:
        """Accepts the records that `poll` has returned. Records that `poll` has not returned yet stay unacknowledged."""
        for session in self._sessions.values():
            session.accept_all()
        for delivery in self._arrived:
            self._holders[delivery.partition].open[delivery.partition][delivery.record.offset] = None

    # Requests

    def _send_fetches(self, assignment: Mapping[TopicPartition, Uuid]) -> None:
        self._routes.end_pauses()
        ready = [partition for partition in assignment if partition not in self._routes.pauses]
        leaders = self._routes.by_leader(ready, self._without_leader)
        brokers = [*{**leaders, **self._sessions}]
        is_limited = self.limits.acquire_mode == RECORD_LIMIT
        if is_limited:
            brokers.sort(key=lambda broker_id: (broker_id <= self._last_asked, broker_id))
        if is_limited and (self._arrived or any(map(self._routes.awaits, brokers))):
            return
        for broker_id in brokers:
            if not self._routes.awaits(broker_id):
                self._ask(broker_id, {partition: assignment[partition] for partition in leaders.get(broker_id, ())})
            if is_limited and self._routes.awaits(broker_id):
                self._last_asked = broker_id
                return

    def _without_leader(self, reasons: Mapping[TopicPartition, KafkaError]) -> None:
        for partition, error in reasons.items():
            self._recover(partition, error)

    def _ask(self, broker_id: int, wanted: Mapping[TopicPartition, Uuid]) -> None:
        """Sends a ShareFetch for `wanted` with their acknowledgements. If there are renewals, or acknowledgements of other partitions,
        sends a ShareAcknowledge first; the ShareFetch follows its answer.
        """
        session = self._session(broker_id)
        acknowledged = session.acknowledged()
        if not wanted and not session.partitions and not acknowledged:
            return
        lost = partial(self._lose, session, partitions=wanted)
        connection = self._routes.connection(broker_id, lost)
        if connection is None:
            return
        if connection is not self._begun_on.get(broker_id):
            self._begin(broker_id, session, connection)
            acknowledged = []
        if session.has_renewals() or any(partition not in wanted for partition in acknowledged):
            request: Request = session.acknowledge_request()
        else:
            request = session.fetch_request(wanted, self.limits)
        try:
            self._routes.post(broker_id, request)
        except TransportError as error:
            lost(error)

    def _begin(self, broker_id: int, session: ConsumerShareSession, connection: BlockingConnection) -> None:
        """Begins the session on a new connection. The session of an earlier connection is lost, with its acquired records."""
        if broker_id in self._begun_on:
            self._lose(session, ConnectError(f"the connection to broker {broker_id} was lost"))
        self._begun_on[broker_id] = connection

    def _is_open(self, broker_id: int) -> bool:
        """Whether the session's connection to a broker is open. Waits for a background call that is opening or renewing it."""
        self._routes.background_calls.finish(broker_id)
        connection = self._routes.connections.get(broker_id)
        return connection is not None and connection is self._begun_on.get(broker_id) and connection.is_open

    def _acknowledge_now(self, broker_id: int, session: ConsumerShareSession, *, is_final: bool = False) -> None:
        """Waits for the answer to the request in flight, and sends the acknowledgements. Each of them is reported once."""
        if not self._is_open(broker_id):
            self._lose(session, ConnectError(f"the connection to broker {broker_id} was lost"))
            return
        try:
            if self._routes.awaits(broker_id):
                self._take(broker_id, self._routes.receive(broker_id))
            if session.epoch != FIRST_EPOCH:  # the session, with its records, was not lost meanwhile
                answer = self._routes.connections[broker_id].request(session.acknowledge_request(is_final=is_final))
                self._take(broker_id, answer)
        except TransportError as error:
            self._take(broker_id, error)

    # Answers

    def _take(self, broker_id: int, answer: Any) -> None:
        """Processes the answer to a ShareFetch or ShareAcknowledge. `poll` returns its acquired records. Raises permanent errors."""
        session, address = self._sessions[broker_id], self._routes.connections[broker_id].address
        if isinstance(answer, TransportError):
            self._lose(session, answer)
            return
        is_fetch = isinstance(answer, ShareFetchResponse)
        if answer.error_code:
            about = f"{'fetching from' if is_fetch else 'acknowledging to'} {address}"
            self._refuse(session, refused(error_code(answer.error_code), answer.error_message or about))
            return
        self.lock_timeout_ms = answer.acquisition_lock_timeout_ms or self.lock_timeout_ms
        for topic in answer.responses:
            for result in topic.partitions:
                partition = session.named(topic.topic_id, result.partition_index)
                if partition is None:
                    continue
                code, message = result.error_code, result.error_message
                if is_fetch:
                    self._acquire(session, partition, result, str(address))
                    code, message = result.acknowledge_error_code, result.acknowledge_error_message
                if partition in session.sent:
                    self._report(session, partition, refusal(code, message, str(partition)))
        self._report_sent(session, None)  # a partition that is missing in the answer has no error

    def _acquire(self, session: ConsumerShareSession, partition: TopicPartition, result: Any, address: str) -> None:
        if result.error_code:
            self._recover(partition, refused(error_code(result.error_code), result.error_message or f"fetching {partition}"))
            return
        try:
            found = session.take(partition, result)
        except WireError as error:
            raise MalformedResponseError(f"{address}: {error}") from None
        if found:
            self._holders[partition] = session
            self._arrived += found

    def _recover(self, partition: TopicPartition, error: KafkaError) -> None:
        if not error.is_retriable:
            raise error
        self._routes.pause([partition])

    # Sessions and their loss

    def _session(self, broker_id: int) -> ConsumerShareSession:
        assert self.membership is not None
        return self._sessions.setdefault(broker_id, ConsumerShareSession(self.group_id, self.membership.member_id))

    def _refuse(self, session: ConsumerShareSession, error: KafkaError) -> None:
        if error.code not in _BEGIN_ANEW and not error.is_retriable:
            raise error
        self._forfeit(session, error, session.partitions)

    def _lose(self, session: ConsumerShareSession, error: TransportError | KafkaError, partitions: Iterable[TopicPartition] = ()) -> None:
        """Ends a session whose connection was lost, and pauses its partitions and `partitions`. Raises any other error."""
        if not is_away(error):
            raise error
        failed = refused(ErrorCode.NETWORK_EXCEPTION, str(error))
        self._forfeit(session, failed, [*partitions, *session.partitions])

    def _forfeit(self, session: ConsumerShareSession, error: KafkaError, partitions: Iterable[TopicPartition]) -> None:
        """Ends a lost session. Reports `error` for its acknowledgements, sent and unsent, and drops its other records, which the broker
        releases."""
        self._routes.pause(partitions)
        self._report_sent(session, error)
        session.acknowledge_request()  # moves the unsent acknowledgements to `session.sent`
        self._report_sent(session, error)
        self._arrived = [delivery for delivery in self._arrived if self._holders[delivery.partition] is not session]
        session.reset()

    def _report_sent(self, session: ConsumerShareSession, error: KafkaError | None) -> None:
        for partition in list(session.sent):
            self._report(session, partition, error)

    def _report(self, session: ConsumerShareSession, partition: TopicPartition, error: KafkaError | None) -> None:
        runs = session.sent.pop(partition)
        if self._on_acknowledged is not None:
            self._on_acknowledged(partition, runs, error)

    def _drop_connections(self) -> None:
        self._routes.close()
        if self.membership is not None:
            self.membership.coordinator.close()
        self._sessions.clear()
        self._begun_on.clear()
