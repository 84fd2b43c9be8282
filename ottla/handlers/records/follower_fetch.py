"""Fetch of a follower: notes the follower's log end, reads the records that it lacks, and waits if there are none.

The answer is sent immediately if a partition diverges, has an error or a new log start offset. If only the high watermark has changed, the
answer is sent after `WATERMARK_MS`. It is sent immediately for the first request of a session and for a request without one. A producer
that waits for each acknowledgement usually writes again within this delay, and the answer with its records contains the watermark. Without
this pause, half of the answers to followers would contain only watermarks. Otherwise the request waits for `min_bytes` of records. The next
request of the same session ends a wait. Records are slices of segment files, except in small answers (`FileSlice.at_hand`).

The cost of a request depends on the partitions in the request and on the changed partitions of its session
(`replication/follower_sessions.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.handlers.context import Broker, Pending, RequestContext, WaitingRequest
from ottla.replication.follower_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MORE,
    NO_SESSION,
    NOTHING,
    FollowedPartition,
    FollowerSession,
)
from ottla.replication.partition import Partition, PartitionRead
from ottla.replication.throttle import is_throttled
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.storage.file_slice import SMALL_BYTES
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.schema import maker

TOPIC_IDS_SINCE = 13
STATE_SINCE = 15
WATERMARK_MS = 2
"""Delay of an answer with only new high watermarks, in milliseconds, so that it may contain records as well."""
BY_ITSELF = -1
"""The session id of a request without a session."""

make_response = maker(FetchResponse)
make_topic = maker(FetchableTopicResponse)
make_result = maker(PartitionData)


def fetch(broker: Broker, request: RequestContext, body: FetchRequest) -> FetchResponse | Pending:
    """Executes a Fetch request with a replica id."""
    if not broker.authorizer.is_allowed(request.connection, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.version >= STATE_SINCE:
        replica_id, broker_epoch = body.replica_state.replica_id, body.replica_state.replica_epoch
    else:
        replica_id, broker_epoch = body.replica_id, -1
    known = broker.metadata.brokers.get(replica_id)
    if known is not None and 0 <= broker_epoch < known.epoch:
        return FetchResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    session: FollowerSession | ErrorCode | None
    if body.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        session = _begin_or_end_session(broker, request, body, replica_id, broker_epoch)
        if session is None:
            return FetchResponse()
    else:
        session = broker.follower_sessions.next(request.connection, body.session_id, body.session_epoch, broker_epoch)
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session)
    if session.requests is None:
        session.requests = FollowerRequests(broker, session)
    answer: FetchResponse | Pending = session.requests.answer_or_wait(request, body)
    return answer


def _begin_or_end_session(
    broker: Broker, request: RequestContext, body: FetchRequest, replica_id: int, broker_epoch: int
) -> FollowerSession | None:
    """Returns the session of a request that is not incremental. Returns None if the request only ends a session."""
    sessions, connection = broker.follower_sessions, request.connection
    if body.session_epoch == FINAL_EPOCH:
        if body.session_id != NO_SESSION:
            sessions.close(connection)
        return FollowerSession(BY_ITSELF, replica_id, broker_epoch) if body.topics else None
    connection.call_when_closed(sessions, lambda _: sessions.drop(connection))
    return sessions.open(connection, replica_id, broker_epoch)


class FollowerRequests:
    """The requests of one session, one after the other. Each is tried immediately, and may wait until a partition of the session has news.

    Implements `follower_sessions.SessionRequests`.
    """

    __slots__ = ("_broker", "_by_ids", "_bytes_max", "_bytes_min", "_is_full", "_is_pausing", "_pending", "_session", "_watch")

    def __init__(self, broker: Broker, session: FollowerSession) -> None:
        self._broker = broker
        self._session = session
        self._pending: Pending | None = None
        """The answer of the waiting request."""
        self._watch: WaitingRequest | None = None
        """The wait of all requests, created by the first one that waits."""

    def answer_or_wait(self, request: RequestContext, body: FetchRequest) -> FetchResponse | Pending:
        if self._pending is not None:
            self.answer_now()
        session, broker = self._session, self._broker
        by_ids = self._by_ids = request.version >= TOPIC_IDS_SINCE
        self._is_full = body.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH)
        self._is_pausing = False
        self._bytes_min = body.min_bytes
        self._bytes_max = min(body.max_bytes, broker.config.fetch_max_bytes)
        session.last_fetch_ms = broker.clock.monotonic_ms()
        for forgotten in body.forgotten_topics_data:
            session.forget((forgotten.topic_id if by_ids else forgotten.topic, index) for index in forgotten.partitions)
        partitions = broker.partitions
        find: Callable[[Any, int], Partition | None] = partitions.get_by_id if by_ids else partitions.get
        for topic in body.topics:
            name = topic.topic_id if by_ids else topic.topic
            for asked in topic.partitions:
                partition = find(name, asked.partition)
                absence = ErrorCode.NONE if partition is not None else self._absence(name, asked.partition)
                session.name((name, asked.partition), asked, partition, absence)
        if session.outside:
            session.judge_outsiders()
        if body.max_wait_ms > 0 and (not session.dirty or (not self._is_full and self._has_only_watermarks())):
            return self._wait(body.max_wait_ms)
        answer = self._attempt(is_last=body.max_wait_ms <= 0)
        if answer is None:
            return self._wait(body.max_wait_ms)
        if session.session_id == BY_ITSELF:
            session.close()
        return answer

    def _absence(self, name: Any, index: int) -> ErrorCode:
        """Returns the error for a partition that is not on this broker. `name` is the topic's id or name."""
        partitions = self._broker.partitions
        known = partitions.topic_name(name) if self._by_ids else name
        return ErrorCode.UNKNOWN_TOPIC_ID if known is None else partitions.absence(known, index)

    # Waiting

    def _wait(self, wait_ms: int) -> Pending:
        pending = self._pending = Pending()
        timeout_ms = min(WATERMARK_MS, wait_ms) if self._is_pausing else wait_ms
        if self._watch is None:
            self._watch = self._broker.waiters.watch((), timeout_ms, self._answer_waiting, self.answer_now)
        else:
            self._watch.wait_for(timeout_ms, self._session.last_fetch_ms)
        pending.abandon = self._abandon
        return pending

    def changed(self, news: int) -> None:
        if self._pending is not None and self._watch is not None:
            if news == MORE or self._is_full:
                self._watch.mark()
            else:
                self._begin_pause()

    def _begin_pause(self) -> None:
        if not self._is_pausing:
            self._is_pausing = True
            if self._watch is not None:
                self._watch.wait_for(WATERMARK_MS, self._broker.clock.monotonic_ms())

    def answer_now(self) -> None:
        """Answers the waiting request with the present data: the wait is over, the pause for a new watermark is over, or the follower has
        sent its next request. Does nothing if no request waits."""
        self._answer_waiting(is_last=True)

    def _answer_waiting(self, *, is_last: bool = False) -> None:
        """Answers the waiting request if a partition has news for it, or if `is_last`."""
        pending, session = self._pending, self._session
        if pending is None or not (session.dirty or is_last):
            return
        answer = self._attempt(is_last=is_last)
        if answer is None:
            return
        self._pending = None
        if session.session_id == BY_ITSELF:
            session.close()
        pending.complete(answer)

    def _abandon(self) -> None:
        """Ends the wait, because the connection is closed."""
        self._pending = None
        if self._session.session_id == BY_ITSELF:
            self._session.close()

    def close(self) -> None:
        watch, self._watch, self._pending = self._watch, None, None
        if watch is not None:
            watch.cancel()

    # Answering

    def _has_only_watermarks(self) -> bool:
        """Whether the changed partitions have nothing for the follower except new high watermarks. If so, the request waits for at most
        `WATERMARK_MS`."""
        for entry in self._session.dirty:
            if entry.news == MORE:
                return False
        self._is_pausing = True
        return True

    def _attempt(self, *, is_last: bool) -> FetchResponse | None:
        """Reads the changed partitions of the session. Returns the answer, or None if the request should wait for more."""
        session, bytes_max = self._session, self._bytes_max
        dirty, session.dirty = session.dirty, []
        found: list[tuple[FollowedPartition, PartitionRead | ErrorCode]] = []
        size, is_urgent, has_watermark = 0, is_last, False
        for entry in dirty:
            if session.followed.get(entry.key) is not entry:
                continue
            read = self._read(entry, bytes_max - size, size == 0)
            partition = entry.partition
            if session.outside or partition is None or session.replica_id not in partition.state.isr_state.members:
                session.note_membership(entry)
            if type(read) is PartitionRead and read.slice is not None:
                size += read.slice.length
            elif type(read) is not PartitionRead or read.diverging_epoch is not None or read.log_start_offset > entry.known_log_start:
                is_urgent = True
            elif read.high_watermark > entry.known_watermark:
                has_watermark = True
            found.append((entry, read))
        is_urgent = is_urgent or (has_watermark and self._is_full)
        if not is_urgent and size < self._bytes_min:
            if has_watermark:
                self._begin_pause()
            self._keep(found)
            return None
        self._broker.follower_sessions.bytes_out += size
        return self._answer(found, SMALL_BYTES if size <= SMALL_BYTES else 0)

    def _read(self, entry: FollowedPartition, left: int, is_first: bool) -> PartitionRead | ErrorCode:
        partition, asked = entry.partition, entry.asked
        if entry.error or partition is None:
            return entry.error
        is_slow = partition.log.config.leader_throttled and self._is_slow(partition)
        if is_slow and not self._broker.follower_sessions.throttle.allows(self._broker.clock.monotonic_ms()):
            left, is_first = 0, False
        bytes_max = asked.partition_max_bytes
        if not 0 <= bytes_max <= left:
            bytes_max = max(0, min(bytes_max, left))
        try:
            read = partition.read_beyond(
                asked.fetch_offset, bytes_max, min_one=is_first, current_leader_epoch=asked.current_leader_epoch,
                diverging_epoch=entry.diverging_epoch,
            )  # fmt: skip
        except ApiError as error:
            return error.code
        if is_slow and read.slice is not None:
            self._broker.follower_sessions.throttle.note(read.slice.length, self._broker.clock.monotonic_ms())
        return read

    def _is_slow(self, partition: Partition) -> bool:
        """Whether the replication throttle applies: the leader's replica is in the throttled replicas and the follower is not in sync."""
        replicas, index = partition.log.config.leader_throttled, partition.topic_partition.partition
        return self._session.replica_id not in partition.isr and is_throttled(replicas, index, partition.broker_id)

    def _keep(self, found: list[tuple[FollowedPartition, PartitionRead | ErrorCode]]) -> None:
        """Keeps the partitions with records or a new high watermark for the next attempt."""
        for entry, read in found:
            entry.news = entry.find_news() if type(read) is PartitionRead else NOTHING
            if entry.news:
                self._session.dirty.append(entry)

    def _answer(self, found: list[tuple[FollowedPartition, PartitionRead | ErrorCode]], small_bytes: int) -> FetchResponse:
        session, by_ids = self._session, self._by_ids
        topics: dict[Any, FetchableTopicResponse] = {}
        for entry, read in found:
            entry.news = NOTHING
            name: Any = entry.key[0]
            index = entry.key[1]
            if type(read) is not PartitionRead:
                assert isinstance(read, ErrorCode)
                entry.is_answered = True
                result = make_result(partition_index=index, error_code=read, high_watermark=-1, aborted_transactions=None, records=b"")
            else:
                records, high_watermark, stable, log_start, _, diverging = read
                has_moved = self._is_full or high_watermark > entry.known_watermark or log_start > entry.known_log_start
                entry.known_watermark, entry.known_log_start = high_watermark, log_start
                entry.is_answered = records is not None or diverging is not None
                if not entry.is_answered:
                    if entry.partition is not None and entry.is_behind(entry.partition):
                        entry.news = MORE  # a full answer or a throttle has excluded records
                        session.dirty.append(entry)
                    if not has_moved:
                        continue
                result = make_result(
                    partition_index=index,
                    high_watermark=high_watermark,
                    last_stable_offset=stable,
                    log_start_offset=log_start,
                    records=records.at_hand(small_bytes) if records is not None else b"",
                    aborted_transactions=None,
                )
                if diverging is not None:
                    result.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = make_topic(topic="" if by_ids else name, topic_id=name if by_ids else ZERO_UUID, partitions=[])
            topic.partitions.append(result)
        session_id = NO_SESSION if session.session_id == BY_ITSELF else session.session_id
        return make_response(session_id=session_id, responses=list(topics.values()))
