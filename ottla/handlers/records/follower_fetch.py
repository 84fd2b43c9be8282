"""Fetch of a follower: notes the follower's log end, reads the records that it lacks, and waits if there are none.

The answer is sent immediately if a partition diverges, has an error or a new log start offset. If only the high watermark has changed, the
answer is sent after `WATERMARK_MS`. It is sent immediately for the first request of a session and for a request without one. A producer
that waits for each acknowledgement usually writes again within this delay, and the answer with its records contains the watermark. Without
this pause, half of the answers to followers would contain only watermarks. Otherwise the request waits for `min_bytes` of records. The next
request of the same session ends a wait. Records are slices of segment files, except a small batch that was just appended
(`FileSlice.at_hand`).

The cost of a request depends on the partitions in the request and on the changed partitions of its session
(`replication/follower_sessions.py`).
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext, WaitingRequest
from ottla.handlers.rights import is_broker
from ottla.replication.follower_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FollowedPartition, FollowerSession
from ottla.replication.partition import Partition, PartitionRead
from ottla.replication.throttle import is_throttled
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
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


def replica_of(request: RequestContext, body: FetchRequest) -> int:
    """Returns the follower's broker id; negative for consumers."""
    return body.replica_state.replica_id if request.version >= STATE_SINCE else body.replica_id


def fetch(broker: Broker, request: RequestContext, body: FetchRequest) -> FetchResponse | Pending:
    """Executes a Fetch request with a replica id."""
    if not is_broker(broker, request):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    session = _session_of(broker, request, body)
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session)
    if session is None:
        return FetchResponse()
    if session.end_wait is not None:
        session.end_wait()
    return FollowerRequest(broker, request, body, session).answer_or_wait()


def _session_of(broker: Broker, request: RequestContext, body: FetchRequest) -> FollowerSession | ErrorCode | None:
    """Returns the session of the request, an error, or None if the request only ends a session."""
    replica_id = replica_of(request, body)
    broker_epoch = body.replica_state.replica_epoch if request.version >= STATE_SINCE else -1
    known = broker.metadata.brokers.get(replica_id)
    if known is not None and 0 <= broker_epoch < known.epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    sessions, connection = broker.follower_sessions, request.connection
    if body.session_epoch == FINAL_EPOCH:
        if body.session_id != NO_SESSION:
            sessions.close(connection)
        return FollowerSession(BY_ITSELF, replica_id, broker_epoch) if body.topics else None
    if body.session_epoch == INITIAL_EPOCH:
        connection.call_when_closed(sessions, lambda _: sessions.drop(connection))
        return sessions.open(connection, replica_id, broker_epoch)
    return sessions.next(connection, body.session_id, body.session_epoch, broker_epoch)


class FollowerRequest:
    """One Fetch of a follower: tried immediately, and again when a partition of its session has changed."""

    __slots__ = ("_body", "_broker", "_by_ids", "_is_full", "_is_pausing", "_pending", "_session", "_watch")

    def __init__(self, broker: Broker, request: RequestContext, body: FetchRequest, session: FollowerSession) -> None:
        self._broker = broker
        self._body = body
        self._session = session
        self._by_ids = request.version >= TOPIC_IDS_SINCE
        self._is_full = body.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH)
        self._pending: Pending | None = None
        self._watch: WaitingRequest | None = None
        self._is_pausing = False
        """Whether the request waits for `WATERMARK_MS` at most, because it has a new high watermark for the follower."""

    def answer_or_wait(self) -> FetchResponse | Pending:
        session, body = self._session, self._body
        session.last_fetch_ms = self._broker.clock.monotonic_ms()
        for forgotten in body.forgotten_topics_data:
            session.forget((forgotten.topic_id if self._by_ids else forgotten.topic, index) for index in forgotten.partitions)
        for topic in body.topics:
            for asked in topic.partitions:
                self._name(topic.topic, topic.topic_id, asked)
        if session.outside:
            session.judge_outsiders()
        answer = self._attempt(is_last=body.max_wait_ms <= 0)
        if answer is None:
            return self._wait()
        self._end()
        return answer

    def _name(self, name: str, topic_id: bytes, asked: FetchPartition) -> None:
        index, partitions = asked.partition, self._broker.partitions
        partition = partitions.get_by_id(topic_id, index) if self._by_ids else partitions.get(name, index)
        absence = ErrorCode.NONE
        if partition is None:
            known = partitions.topic_name(topic_id) if self._by_ids else name
            absence = ErrorCode.UNKNOWN_TOPIC_ID if known is None else partitions.absence(known, index)
        self._session.name((topic_id if self._by_ids else name, index), asked, partition, absence)

    # Waiting

    def _wait(self) -> Pending:
        session = self._session
        pending = self._pending = Pending()
        timeout_ms = min(WATERMARK_MS, self._body.max_wait_ms) if self._is_pausing else self._body.max_wait_ms
        watch = self._watch = self._broker.waiters.watch((), timeout_ms, self._woken, self._give_up)
        pending.abandon = self._abandon
        session.wake = watch.mark
        session.end_wait = self._give_up
        return pending

    def _woken(self) -> None:
        answer = self._attempt(is_last=False)
        if answer is not None:
            self._complete(answer)

    def _give_up(self) -> None:
        """Answers with the present data: the wait is over, the pause for a new watermark is over, or the follower has sent its next
        request."""
        answer = self._attempt(is_last=True)
        assert answer is not None, "the last attempt answers"
        self._complete(answer)

    def _complete(self, answer: FetchResponse) -> None:
        pending = self._pending
        self._end()
        if pending is not None and not pending.is_done:
            pending.complete(answer)

    def _abandon(self) -> None:
        """Ends the wait, because the connection is closed."""
        self._end()

    def _end(self) -> None:
        session, watch = self._session, self._watch
        session.wake = session.end_wait = None
        if watch is not None:
            watch.cancel()
        if session.session_id == BY_ITSELF:
            session.close()

    # Answering

    def _attempt(self, *, is_last: bool) -> FetchResponse | None:
        """Reads the changed partitions of the session. Returns the answer, or None if the request should wait for more."""
        body, session = self._body, self._session
        if not is_last and (not session.dirty or (not self._is_full and self._has_only_watermarks())):
            return None
        left = min(body.max_bytes, self._broker.config.fetch_max_bytes)
        dirty, session.dirty = session.dirty, []
        found: list[tuple[FollowedPartition, PartitionRead | ErrorCode]] = []
        size, is_urgent, has_watermark = 0, is_last, False
        for entry in dirty:
            if session.followed.get(entry.key) is not entry:
                continue
            read = self._read(entry, left - size, size == 0)
            session.note_membership(entry)
            if type(read) is PartitionRead and read.slice is not None:
                size += read.slice.length
            elif type(read) is not PartitionRead or read.diverging_epoch is not None or read.log_start_offset > entry.known_log_start:
                is_urgent = True
            elif read.high_watermark > entry.known_watermark:
                has_watermark = True
            found.append((entry, read))
        is_urgent = is_urgent or (has_watermark and self._is_full)
        if not is_urgent and size < body.min_bytes:
            if has_watermark:
                self._begin_pause()
            self._keep(found)
            return None
        self._broker.follower_sessions.bytes_out += size
        return self._answer(found)

    def _has_only_watermarks(self) -> bool:
        """Whether the changed partitions have nothing for the follower except new high watermarks. If so, the request waits for at most
        `WATERMARK_MS`."""
        session = self._session
        dirty = session.dirty
        for entry in dirty:
            if not entry.has_at_most_watermark() and session.followed.get(entry.key) is entry:
                return False
        session.dirty = left = []
        for entry in dirty:
            partition = entry.partition
            entry.is_dirty = partition is not None and partition.state.high_watermark > entry.known_watermark
            if session.followed.get(entry.key) is entry:
                session.note_membership(entry)
                if entry.is_dirty:
                    left.append(entry)
        if left:
            self._begin_pause()
        return True

    def _begin_pause(self) -> None:
        if not self._is_pausing:
            self._is_pausing = True
            if self._watch is not None:
                self._watch.shorten(WATERMARK_MS)

    def _read(self, entry: FollowedPartition, left: int, is_first: bool) -> PartitionRead | ErrorCode:
        partition, asked = entry.partition, entry.asked
        if entry.error or partition is None:
            return entry.error
        is_slow = bool(partition.log.config.leader_throttled) and self._is_slow(partition)
        is_held = is_slow and not self._broker.follower_sessions.throttle.allows(self._broker.clock.monotonic_ms())
        try:
            read = partition.read_beyond(
                asked.fetch_offset,
                0 if is_held else max(0, min(asked.partition_max_bytes, left)),
                min_one=is_first and not is_held,
                current_leader_epoch=asked.current_leader_epoch,
                diverging_epoch=entry.diverging_epoch,
            )
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
            entry.is_dirty = type(read) is PartitionRead and (
                read.slice is not None or has_more(entry, read) or has_moved(entry, read)
            )
            if entry.is_dirty:
                self._session.dirty.append(entry)

    def _answer(self, found: list[tuple[FollowedPartition, PartitionRead | ErrorCode]]) -> FetchResponse:
        session, is_full = self._session, self._is_full
        topics: dict[Any, list[PartitionData]] = {}
        for entry, read in found:
            entry.is_dirty = False
            if type(read) is not PartitionRead:
                assert isinstance(read, ErrorCode)
                entry.is_answered = True
                result = make_result(
                    partition_index=entry.key[1], error_code=read, high_watermark=-1, aborted_transactions=None, records=b""
                )
            else:
                is_changed = is_full or read.slice is not None or read.diverging_epoch is not None or has_moved(entry, read)
                self._note_answered(entry, read)
                if not is_changed:
                    continue
                result = data_of(entry, read)
            topics.setdefault(entry.key[0], []).append(result)
        responses = [
            make_topic(topic="" if self._by_ids else name, topic_id=name if self._by_ids else bytes(16), partitions=results)
            for name, results in topics.items()
        ]
        session_id = NO_SESSION if session.session_id == BY_ITSELF else session.session_id
        return make_response(session_id=session_id, responses=responses)

    def _note_answered(self, entry: FollowedPartition, read: PartitionRead) -> None:
        entry.known_watermark, entry.known_log_start = read.high_watermark, read.log_start_offset
        entry.is_answered = read.slice is not None or read.diverging_epoch is not None
        if not entry.is_answered and has_more(entry, read):
            entry.is_dirty = True
            self._session.dirty.append(entry)


def has_moved(entry: FollowedPartition, read: PartitionRead) -> bool:
    """Whether the leader's high watermark or log start is higher than the follower knows."""
    return entry.has_moved(read.high_watermark, read.log_start_offset)


def has_more(entry: FollowedPartition, read: PartitionRead) -> bool:
    """Whether the log has records beyond the fetch offset, which a full answer or a throttle may have excluded."""
    partition = entry.partition
    return partition is not None and read.diverging_epoch is None and entry.is_behind(partition)


def data_of(entry: FollowedPartition, read: PartitionRead) -> PartitionData:
    result = make_result(
        partition_index=entry.key[1],
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        records=read.slice.at_hand() if read.slice is not None else b"",
        aborted_transactions=None,
    )
    if read.diverging_epoch is not None:
        result.diverging_epoch = EpochEndOffset(epoch=read.diverging_epoch[0], end_offset=read.diverging_epoch[1])
    return result
