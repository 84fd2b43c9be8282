"""Fetches from one leader, for all partitions that follow it: decides the next request and processes the answers.

One incremental fetch session (KIP-227) covers these partitions. A request names partitions whose log changed since they were last named,
and an answer names partitions with news, so idle partitions cost nothing. For each partition of an answer, its state machine `Follower`
decides how the log changes, and its `FollowerLog` changes it. Records are appended as received, without a copy.

A request waits at the leader until there is something to send. If a partition must be named meanwhile, for example because it begins to
follow this leader, a second request is sent, and the leader then answers the first. At most two fetches are in flight; a request for the
leader's log start or log end (ListOffsets) waits until no fetch is in flight. An answer is used for a partition only if the requested
offset is still the log end. The answer's request must also be the first one that named the partition in its current term, or a later one
(I18).

A partition with an error is removed from the session for a while: usually for `replica.fetch.backoff.ms`. If the leader probably has not
processed the controller's message yet (`SOON_OVER`), the time begins with `RETRY_MS_MIN` and gets longer. An error of the whole request
ends the session; the next requests name all partitions again.

`cluster/replica_fetchers.py` sends the requests and has the timers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import islice

from ottla.base.errors import ApiError, ErrorCode, error_code
from ottla.base.immutable import immutable
from ottla.replication.followed import Followed, Key, position
from ottla.replication.follower import AskBounds, FollowerState, FollowerStep, Todo
from ottla.replication.partition import Partition
from ottla.replication.reads import EARLIEST_LOCAL, LATEST
from ottla.replication.throttle import UNLIMITED, ReplicationThrottle
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.schema import maker

log = logging.getLogger("ottla.replication")

RETRY_MS_MIN = 10
THROTTLE_PAUSE_MS = 100
"""A throttled partition is tried again after this time, in milliseconds."""
IN_FLIGHT_MAX = 2
NAMED_MAX = 500
"""Partitions that one request asks for. The leader needs some 10 us for each, and other clients wait for that. Reports of durable ends are
not counted."""
NO_SESSION = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFFFFFF

SOON_OVER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that end within moments: the controller's message has reached this broker but has not reached the leader yet."""

ABOUT_THE_OFFSET = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})
"""Results that are valid only if the log still ends at the requested offset."""

make_request, make_replica, make_topic = maker(FetchRequest), maker(ReplicaState), maker(FetchTopic)

SESSION_IS_GONE = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})

@immutable(kw_only=True)
class FollowerFetchLimits:
    """The settings `replica.fetch.*`."""

    bytes_max: int
    response_bytes_max: int
    bytes_min: int
    wait_ms_max: int
    backoff_ms: int


class SentFetch:
    """A request to send or in flight. `session` is the number of its session; the sessions with this leader are counted."""

    __slots__ = ("body", "number", "session")

    def __init__(self, number: int, session: int, body: FetchRequest | ListOffsetsRequest) -> None:
        self.number = number
        self.session = session
        self.body = body


class Fetcher:
    """All partitions of this broker that follow broker `leader_id`; see the module."""

    def __init__(
        self,
        leader_id: int,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        limits: Callable[[], FollowerFetchLimits],
        wake: Callable[[], None] = lambda: None,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        """`wake` is called when a report for the leader is due (`FollowerLog.on_durable`)."""
        self.leader_id = leader_id
        self.bytes_in = 0
        """Bytes of records received from the leader."""
        self._wake = wake
        self._throttle = throttle if throttle is not None else ReplicationThrottle(lambda: UNLIMITED)
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._limits = limits
        self._followed: dict[Key, Followed] = {}
        self._changed: dict[Followed, None] = {}
        self._reports: dict[Followed, None] = {}
        self._asking: dict[Followed, None] = {}
        self._paused: list[tuple[int, int, Followed]] = []
        self._in_flight: deque[SentFetch] = deque()
        self._count = 0
        self._pause_count = 0
        self._failures = 0
        self._paused_until_ms = 0
        # The state of the session at the leader.
        self._session = 0
        self._session_id = NO_SESSION
        self._session_epoch = 0
        self._named: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}

    # The partitions

    @property
    def is_idle(self) -> bool:
        """Whether no partition follows this leader, no request is in flight and the session is closed."""
        return not self._followed and not self._in_flight and self._session_id == NO_SESSION

    @property
    def lag_max(self) -> int:
        """The largest lag of the partitions, in records."""
        return max((followed.follower_log.lag for followed in self._followed.values()), default=0)

    def follow(self, partition: Partition) -> None:
        """Adds a partition that follows this leader; does nothing if it was added in the same term."""
        follower_log, key = partition.follower_log, (partition.topic_id, partition.topic_partition.partition)
        if follower_log is None:
            return
        known = self._followed.get(key)
        if known is not None and known.follower_log is follower_log:
            return
        if known is not None:
            self._drop(known)
        followed = self._followed[key] = Followed(key, partition, follower_log)
        follower_log.on_durable = partial(self._report, followed)
        self._changed[followed] = None

    def stop(self, key: Key) -> None:
        """Removes a partition that no longer follows this leader."""
        followed = self._followed.get(key)
        if followed is not None:
            self._drop(followed)

    def _report(self, followed: Followed) -> None:
        """Plans a report of the follower's durable end and log start, because acknowledgements or DeleteRecords at the leader may wait for
        them. A partition that is named in the next request anyway needs no report."""
        if followed.key in self._named and followed not in self._changed:
            self._reports[followed] = None
            self._wake()

    def _drop(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed:
            del self._followed[followed.key]
        followed.follower_log.on_durable = None
        self._changed.pop(followed, None)
        self._asking.pop(followed, None)
        self._reports.pop(followed, None)
        self._forget(followed.key)

    def _forget(self, key: Key) -> None:
        if key in self._named:
            del self._named[key]
            self._forgotten[key] = None

    # Requests

    def next_request(self, now_ms: int) -> SentFetch | None:
        """Returns the request to send now; None means to wait for an answer, a change or `wake_at_ms`."""
        if now_ms < self._paused_until_ms or len(self._in_flight) >= IN_FLIGHT_MAX:
            return None
        if self._in_flight and not (self._changed or self._reports or self._forgotten or self._asking or self._paused):
            return None
        if self._paused:
            self._end_pauses(now_ms)
        self._drop_ended()
        self._pause_throttled(now_ms)
        if self._asking:
            return None if self._in_flight else self._send(self._ask_bounds())
        is_asking = bool(self._in_flight) and isinstance(self._in_flight[0].body, ListOffsetsRequest)
        body = None if is_asking else self._fetch()
        return None if body is None else self._send(body)

    def wake_at_ms(self, now_ms: int) -> int | None:
        """Returns the time at which `next_request` must be called again; None if only an answer or a change makes a request due."""
        if now_ms < self._paused_until_ms:
            return self._paused_until_ms
        return self._paused[0][0] if self._paused else None

    def _end_pauses(self, now_ms: int) -> None:
        while self._paused and self._paused[0][0] <= now_ms:
            followed = heappop(self._paused)[2]
            followed.is_paused = False
            if self._followed.get(followed.key) is followed:
                self._plan(followed)

    def _drop_ended(self) -> None:
        """Drops partitions whose term has ended since they were planned: they are offline or have another leader epoch."""
        for followed in (*self._changed, *self._asking):
            if followed.follower_log.is_over:
                self._drop(followed)

    def _pause_throttled(self, now_ms: int) -> None:
        """Removes throttled partitions that lag from the session for `THROTTLE_PAUSE_MS` while the rate is exceeded."""
        for followed in tuple(self._changed):
            if followed.is_throttled and followed.follower_log.lag and not self._throttle.allows(now_ms):
                self._forget(followed.key)
                del self._changed[followed]
                self._pause_until(followed, now_ms + THROTTLE_PAUSE_MS)

    def _send(self, body: FetchRequest | ListOffsetsRequest) -> SentFetch:
        self._count += 1
        sent = SentFetch(self._count, self._session, body)
        self._in_flight.append(sent)
        return sent

    def _fetch(self) -> FetchRequest | None:
        if self._session_id == NO_SESSION:
            if self._in_flight or not self._changed:
                return None
            return self._named_fetch(session_epoch=0, wait_ms=0)  # the answer has the session id, so the leader must not wait
        if not self._followed:
            return None if self._in_flight else self._close_session()
        if self._in_flight and not (self._changed or self._forgotten or self._reports):
            return None
        self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        return self._named_fetch(session_epoch=self._session_epoch)

    def _named_fetch(self, *, session_epoch: int, wait_ms: int | None = None) -> FetchRequest:
        """Returns a request. Without `wait_ms` the leader may wait for `replica.fetch.wait.max.ms`."""
        limits = self._limits()
        changed = list(islice(self._changed, NAMED_MAX))
        topics: dict[bytes, FetchTopic] = {}
        for followed in changed:
            del self._changed[followed]
            topic_id = followed.key[0]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = make_topic(topic_id=topic_id)
            topic.partitions.append(self._name(followed, limits.bytes_max))
        reports, self._reports = self._reports, {}
        for followed in reports:
            topic = topics.setdefault(followed.key[0], FetchTopic(topic_id=followed.key[0]))
            topic.partitions.append(position(followed, 0))
        return make_request(
            replica_state=make_replica(replica_id=self._broker_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=limits.wait_ms_max if wait_ms is None else wait_ms,
            min_bytes=limits.bytes_min,
            max_bytes=limits.response_bytes_max,
            session_id=self._session_id,
            session_epoch=session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=self._take_forgotten() if self._forgotten else [],
        )

    def _name(self, followed: Followed, bytes_max: int) -> FetchPartition:
        if followed.named_in_request is None:
            followed.named_in_request = self._count + 1
        self._named[followed.key] = None
        self._forgotten.pop(followed.key, None)
        self._reports.pop(followed, None)
        named = position(followed, bytes_max)
        followed.asked_offset = named.fetch_offset
        return named

    def _take_forgotten(self) -> list[ForgottenTopic]:
        forgotten, self._forgotten = self._forgotten, {}
        by_topic: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in forgotten:
            by_topic.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        return list(by_topic.values())

    def _close_session(self) -> FetchRequest:
        replica = ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch())
        session_id = self._session_id
        self._end_session()
        return FetchRequest(replica_state=replica, max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=FINAL_EPOCH)

    def _ask_bounds(self) -> ListOffsetsRequest:
        """Asks for the leader's log start. For partitions whose log start was answered already, asks for the log end."""
        topics: dict[str, ListOffsetsTopic] = {}
        for followed in self._asking:
            key = followed.partition.topic_partition
            asked = followed.follower.next_request(followed.partition.log.epochs, followed.partition.log.log_end_offset)
            assert isinstance(asked, AskBounds), f"{key} does not ask for bounds"
            timestamp = EARLIEST_LOCAL if followed.bounds_start < 0 else LATEST
            wanted = ListOffsetsPartition(
                partition_index=key.partition, current_leader_epoch=asked.current_leader_epoch, timestamp=timestamp
            )
            topics.setdefault(key.topic, ListOffsetsTopic(name=key.topic)).partitions.append(wanted)
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))

    # Answers

    def on_answer(self, sent: SentFetch, response: FetchResponse | ListOffsetsResponse, now_ms: int) -> None:
        """Processes an answer. Answers arrive in the order of requests. An answer to a request of an earlier session is ignored."""
        self._end(sent)
        if sent.session != self._session:
            return
        if isinstance(response, ListOffsetsResponse):
            self._on_bounds(response, now_ms)
            return
        if response.error_code:
            self._fail(error_code(response.error_code), now_ms)
            return
        self._failures = 0
        session_epoch = sent.body.session_epoch if isinstance(sent.body, FetchRequest) else FINAL_EPOCH
        if session_epoch == FINAL_EPOCH:
            return
        if session_epoch == 0:
            self._session_id = response.session_id
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                if followed is not None and followed.named_in_request is not None and followed.named_in_request <= sent.number:
                    self._take(followed, data, now_ms)
        if self._session_id == NO_SESSION:
            self._fail(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, now_ms)

    def on_failure(self, sent: SentFetch, code: ErrorCode, now_ms: int) -> None:
        """Handles a request without an answer; the leader may have executed it. The session ends with its connection."""
        self._end(sent)
        if sent.session == self._session:
            self._fail(code, now_ms)

    def _end(self, sent: SentFetch) -> None:
        if sent in self._in_flight:  # compared by identity
            self._in_flight.remove(sent)

    def _fail(self, code: ErrorCode, now_ms: int) -> None:
        """Ends the session, and starts a backoff that grows with each failure in a row. There is no backoff after a first failure if only
        the session was lost."""
        self._failures += 1
        is_only_gone = code in SESSION_IS_GONE and self._failures == 1
        pause_ms = 0 if is_only_gone else min(RETRY_MS_MIN << min(self._failures - 1, 20), self._limits().backoff_ms)
        self._paused_until_ms = now_ms + pause_ms
        if not is_only_gone and self._failures == 1:
            log.info("broker %d does not answer fetches: %s", self.leader_id, code.name)
        self._end_session()
        for followed in self._followed.values():
            if not followed.is_paused:
                self._plan(followed)

    def _end_session(self) -> None:
        self._session += 1
        self._session_id, self._session_epoch = NO_SESSION, 0
        self._reports.clear()
        self._named.clear()
        self._forgotten.clear()

    def _take(self, followed: Followed, data: PartitionData, now_ms: int) -> None:
        own = followed.partition.log
        if followed.is_paused or followed.follower.state is not FollowerState.FETCHING:
            return
        if followed.follower_log.is_over:
            self._drop(followed)
            return
        code = error_code(data.error_code) if data.error_code else ErrorCode.NONE
        end = own.log_end_offset
        if code in ABOUT_THE_OFFSET and followed.asked_offset != end:
            self._changed[followed] = None
            return
        diverging = data.diverging_epoch
        is_diverging = diverging.epoch >= 0 or diverging.end_offset >= 0
        todo = followed.follower.on_fetched(
            code, (diverging.epoch, diverging.end_offset) if is_diverging else None, epochs=own.epochs, log_end_offset=end
        )
        if todo.step is FollowerStep.WAIT:
            self._pause(followed, code, now_ms)
        elif self._carry_out(followed, todo, data, now_ms):
            self._plan(followed)

    def _carry_out(self, followed: Followed, todo: Todo, data: PartitionData | None, now_ms: int) -> bool:
        """Changes the log. Returns whether the partition must be named again now. After a failure it is removed from the session for a
        while."""
        follower_log, own = followed.follower_log, followed.partition.log
        end, start = own.log_end_offset, own.log_start_offset
        try:
            if todo.step is FollowerStep.TRUNCATE:
                follower_log.truncate(todo.offset)
            elif todo.step is FollowerStep.RESTART:
                follower_log.restart(todo.offset)
            elif todo.step is FollowerStep.APPEND and data is not None:
                records = memoryview(data.records or b"")
                self.bytes_in += len(records)
                if followed.is_throttled:
                    self._throttle.note(len(records), now_ms)
                follower_log.append(records, high_watermark=data.high_watermark, leader_log_start=data.log_start_offset)
                if records and own.log_end_offset == end:
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE, "no whole batch")
        except ApiError as error:
            log.error("%s follows broker %d: %s", followed.partition.topic_partition, self.leader_id, error.message)
            followed.damaged_at = end if error.code is ErrorCode.CORRUPT_MESSAGE else -1
            self._pause(followed, error.code, now_ms)
            return False
        followed.failures = 0
        return todo.step is not FollowerStep.APPEND or own.log_end_offset != end or own.log_start_offset != start

    def _on_bounds(self, response: ListOffsetsResponse, now_ms: int) -> None:
        by_name = {followed.partition.topic_partition: followed for followed in self._asking}
        for topic in response.topics:
            for answer in topic.partitions:
                followed = by_name.pop((topic.name, answer.partition_index), None)  # type: ignore[call-overload]
                if followed is not None:
                    self._take_bound(followed, answer, now_ms)
        for followed in by_name.values():  # missing in the answer
            self._pause(followed, ErrorCode.UNKNOWN_SERVER_ERROR, now_ms)

    def _take_bound(self, followed: Followed, answer: ListOffsetsPartitionResponse, now_ms: int) -> None:
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE and followed.bounds_start < 0 <= answer.offset:
            followed.bounds_start = answer.offset
            return
        start, followed.bounds_start = followed.bounds_start, -1
        end = followed.partition.log.log_end_offset
        todo = followed.follower.on_leader_bounds(code, start=start, end=answer.offset, log_end_offset=end)
        if todo.step is FollowerStep.WAIT:
            self._pause(followed, code, now_ms)
        elif self._carry_out(followed, todo, None, now_ms):
            self._plan(followed)

    # Planning

    def _plan(self, followed: Followed) -> None:
        """Plans the next request of the partition."""
        self._asking.pop(followed, None)
        self._changed.pop(followed, None)
        self._reports.pop(followed, None)
        if followed.follower.state is FollowerState.FETCHING:
            self._changed[followed] = None
        elif followed.follower.state is FollowerState.ASKING_BOUNDS:
            self._forget(followed.key)
            self._asking[followed] = None

    def _pause(self, followed: Followed, code: ErrorCode, now_ms: int) -> None:
        """Removes the partition from the session and plans its next attempt. After FENCED_LEADER_EPOCH there is no attempt until the
        partition's next term."""
        self._asking.pop(followed, None)
        self._changed.pop(followed, None)
        self._reports.pop(followed, None)
        self._forget(followed.key)
        followed.failures += 1
        if followed.failures == 1:
            log.info("%s cannot be fetched from broker %d: %s", followed.partition.topic_partition, self.leader_id, code.name)
        if followed.follower.state is FollowerState.STOPPED:
            return
        backoff_ms = self._limits().backoff_ms
        pause_ms = min(RETRY_MS_MIN << min(followed.failures - 1, 20), backoff_ms) if code in SOON_OVER else backoff_ms
        self._pause_until(followed, now_ms + pause_ms)

    def _pause_until(self, followed: Followed, end_ms: int) -> None:
        followed.is_paused = True
        self._pause_count += 1
        heappush(self._paused, (end_ms, self._pause_count, followed))
