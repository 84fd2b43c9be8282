"""ShareFetch: a member of a share group acquires records, and acknowledges earlier ones.

Behaviour: acknowledgements in the request are applied first (`share_acknowledge.py`). Then the partitions of the session are read,
beginning each time with another one, each from the first available offset, and records are acquired until there are `max_records`. The
answer has slices of segment files, whole batches of which the member may use the offsets named as acquired. If fewer than `min_bytes` are
available, it waits up to `max_wait_ms` for a partition to move or records to become available again, asks for the rights again, and then
the same code runs again. A request for 0 bytes or records acquires nothing and does not wait. The answer is sent when the acknowledgements
are durable and the reading has ended.
UNSUPPORTED_VERSION while the feature `share.version` is at level 0.

Version notes: 1 limits by records and batches of about `batch_size`; 2 strict limit of records (KIP-1206), renewed locks (KIP-1222): a
request that renews reads nothing.

Not done: nothing that Kafka 4.3 does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.share_state import SharePartitionKey
from ottla.base.turns import run_steps
from ottla.replication.partition import Partition
from ottla.requests.context import Broker, Pending, RequestContext, Watch, Watched
from ottla.requests.endpoints import live_brokers
from ottla.requests.rights import is_allowed, require
from ottla.requests.share_acknowledgements import (
    LEADERSHIP_ERRORS,
    RENEWAL_SINCE,
    Codes,
    Stated,
    acknowledge,
    check_size,
    identity,
    leader_of,
    statements,
    topic_name,
)
from ottla.requests.share_reads import LogWalk, find_start
from ottla.security.acl import AclOperation, ResourceType
from ottla.sharing.acquisition import BATCH_OPTIMIZED, RECORD_LIMIT, Acquired
from ottla.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, ShareSession
from ottla.sharing.share_partition import Check, SharePartition
from ottla.storage.file_slice import FileSlice
from ottla.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.wire.schema import maker

make_result = maker(PartitionData)
make_acquired = maker(AcquiredRecords)

PARTITIONS_PER_STEP = 20
READS_MAX = 32
"""Slices read of one partition for one answer, while none has a record that may be delivered."""


class Got(NamedTuple):
    """The records of one partition in an answer."""

    records: FileSlice
    acquired: list[Acquired]


class Reading:
    """One partition of the session in this request; after an `error` it is not read any more."""

    __slots__ = ("check", "error", "partition", "place", "share")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.partition: Partition | None = None
        self.share: SharePartition | None = None
        self.check: Check | None = None
        self.error = ErrorCode.NONE


def handle(broker: Broker, request: RequestContext, body: ShareFetchRequest) -> ShareFetchResponse | Pending:
    return run_steps(_steps(broker, request, body, is_in_turns=False))


def listed(broker: Broker, body: ShareFetchRequest) -> int:
    """The partitions of the session, which a request need not name."""
    session = broker.share_sessions.find(body.group_id or "", body.member_id or "")
    return len(session.wanted) if session is not None else 0


def handle_in_steps(
    broker: Broker, request: RequestContext, body: ShareFetchRequest
) -> Generator[None, None, ShareFetchResponse | Pending]:
    """The same for thousands of partitions."""
    return (yield from _steps(broker, request, body, is_in_turns=True))


def _steps(
    broker: Broker, request: RequestContext, body: ShareFetchRequest, *, is_in_turns: bool
) -> Generator[None, None, ShareFetchResponse | Pending]:
    try:
        group_id, member_id = identity(broker, request, body.group_id, body.member_id)
        is_renewing = request.version >= RENEWAL_SINCE and body.is_renew_ack
        if is_renewing:
            check_renewal(body)
        if body.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no acquire mode {body.share_acquire_mode}")
        check_size(body.topics, body.forgotten_topics_data)
        session, stated = enter(broker, request, body, group_id, member_id)
    except ApiError as error:
        refusal = ShareFetchResponse(error_code=error.code, error_message=error.message)
        return refusal if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED else answer_later(broker, refusal, body.max_wait_ms)
    acknowledging = acknowledge(broker, request, group_id, member_id, stated, is_renewing)
    answer = Answer(broker, request, body, session)
    if body.share_session_epoch == FINAL_EPOCH:
        broker.share_sessions.end(session)
    elif not is_renewing:
        yield from answer.fetch.start(is_in_turns=is_in_turns)
    acknowledging(answer.on_acknowledged)
    return answer.finish_or_wait()


def answer_later(broker: Broker, refusal: ShareFetchResponse, wait_ms: int) -> Pending:
    """Answers an error after the wait for records: a client without a session tries again at once."""
    pending = Pending()
    timer = broker.timers.call_later(max(wait_ms, 0), lambda: pending.complete(refusal))
    pending.abandon = timer.cancel
    return pending


def check_renewal(body: ShareFetchRequest) -> None:
    """A request that renews locks must not ask for records. Raises `ApiError`."""
    for name in ("max_bytes", "min_bytes", "max_records", "max_wait_ms"):
        if getattr(body, name):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} must be zero where locks are renewed, it is {getattr(body, name)}")


def enter(
    broker: Broker, request: RequestContext, body: ShareFetchRequest, group_id: str, member_id: str
) -> tuple[ShareSession, list[Stated]]:
    """The session, and its acknowledgements. Raises `ApiError`."""
    stated = [
        ((topic.topic_id, partition.partition_index), statements(partition.acknowledgement_batches))
        for topic in body.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    ]
    sessions = broker.share_sessions
    if body.share_session_epoch == INITIAL_EPOCH:
        if stated:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a session that is opened has no records to speak of")
        session = sessions.open(group_id, member_id, request.connection)
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, "too many share sessions")
    else:
        found, code = sessions.step(group_id, member_id, body.share_session_epoch)
        if found is None:
            raise ApiError(code, f"no session of {member_id} goes on with epoch {body.share_session_epoch}")
        session = found
    if body.share_session_epoch != FINAL_EPOCH:
        added = [(topic.topic_id, partition.partition_index) for topic in body.topics for partition in topic.partitions]
        forgotten = [(topic.topic_id, index) for topic in body.forgotten_topics_data for index in topic.partitions]
        if not sessions.update(session, added, forgotten):
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, "too many partitions in share sessions")
    return session, stated


class ShareFetch:
    """The reading part: tried at once, and again whenever something has moved, until it has ended."""

    __slots__ = ("_body", "_broker", "_is_record_limit", "_on_end", "_readings", "_request", "_session", "_watch", "got", "is_over")

    def __init__(
        self, broker: Broker, request: RequestContext, body: ShareFetchRequest, session: ShareSession, on_end: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._request = request
        self._body = body
        self._session = session
        self._on_end = on_end
        self._is_record_limit = body.share_acquire_mode == RECORD_LIMIT
        self._readings: list[Reading] = []
        self._watch: Watch | None = None
        self.got: dict[Place, Got] = {}
        self.is_over = True

    def start(self, *, is_in_turns: bool) -> Generator[None, None, None]:
        """Steps: between two of them, where they run in turns, the session may end, and what was read may move, as they may while a request
        waits."""
        for number, place in enumerate(self._session.in_turn(self._body.share_session_epoch), 1):
            self._readings.append(self._open(place))
            if not number % PARTITIONS_PER_STEP:
                yield
                if not self._is_in_session():
                    return
        is_hurried = self._body.max_wait_ms <= 0 or not self._wants_records
        self.is_over = not self._readings or (yield from self._attempt_in_steps(is_hurried)) or is_hurried
        if self.is_over:
            return
        watched: list[Watched] = []
        for reading in self._readings:
            if reading.partition is not None and reading.share is not None:
                watched += (reading.partition.notifier, reading.share.notifier)
        self._watch = self._broker.waiters.watch(watched, self._body.max_wait_ms, self._wake, self._give_up)
        if is_in_turns:
            self._broker.timers.call_soon(self._look_again)

    def outcomes(self) -> list[tuple[Place, ErrorCode]]:
        """The partitions that failed, with their errors; in the answer that opens a session, every partition."""
        is_opening = self._body.share_session_epoch == INITIAL_EPOCH
        return [(reading.place, reading.error) for reading in self._readings if reading.error or is_opening]

    def let_go(self) -> None:
        """Ends the circle of references with the answer, once that is made: many partitions would be kept until the next collection."""
        self._readings, self._watch, self._on_end = [], None, _nothing

    def abandon(self) -> None:
        """Ends the wait of a client that is gone, without reading."""
        if self._watch is not None:
            self._watch.cancel()

    @property
    def _wants_records(self) -> bool:
        """A request for no records or no bytes may open a session or acknowledge; it locks nothing and does not wait."""
        return self._body.max_records > 0 and self._body.max_bytes > 0

    def _look_again(self) -> None:
        """What moved between its step and the wait has not woken this."""
        if self._watch is not None and not self._watch.is_cancelled:
            self._wake()

    def _wake(self) -> None:
        if not self._may_go_on() or self._attempt(False):
            self._end()

    def _give_up(self) -> None:
        if self._may_go_on():
            self._attempt(True)
        self._end()

    def _may_go_on(self) -> bool:
        """Whether the group may still be read with after a wait: rights may have been withdrawn. Sets the error of topics that may not.

        Without the right to the group nothing is acquired, and the member's next request is refused.
        """
        broker, request = self._broker, self._request
        if broker.authorizer.allows_clients_everything(request.connection):
            return True
        for reading in self._readings:
            name = reading.partition.topic_partition.topic if reading.partition is not None else None
            if name is not None and not is_allowed(broker, request, AclOperation.READ, ResourceType.TOPIC, name):
                reading.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return is_allowed(broker, request, AclOperation.READ, ResourceType.GROUP, self._session.group_id)

    def _end(self) -> None:
        if self._watch is not None and not self._watch.is_cancelled:
            self._watch.cancel()
            self.is_over = True
            self._on_end()

    def _open(self, place: Place) -> Reading:
        reading = Reading(place)
        try:
            name = topic_name(self._broker, place[0])
            require(self._broker, self._request, AclOperation.READ, ResourceType.TOPIC, name)
            partition = self._broker.partitions.get_by_id(*place)
            if partition is None:
                raise ApiError(self._broker.partitions.absence(name, place[1]), f"{name}-{place[1]} is not here")
            partition.require_leading()
        except ApiError as error:
            reading.error = error.code
            return reading
        reading.partition = partition
        self._open_share(reading, partition)
        return reading

    def _open_share(self, reading: Reading, partition: Partition) -> None:
        """The share partition, checked first if the member begins to read it; made again if what it goes on from is not stored any more.
        None where there is no room for it: until there is, no record is available."""
        shares, clock, session = self._broker.share_partitions, self._broker.clock, self._session
        key = SharePartitionKey(session.group_id, *reading.place)
        known = shares.find(key, partition.leader_epoch)

        def get() -> SharePartition:
            return shares.get(key, partition.leader_epoch, lambda reset: find_start(partition, reset, clock.wall_ms()))

        try:
            share = get()
            reading.check = session.check(reading.place, share, share is not known)
            share = get() if share is known and share.is_closed else share
        except ApiError:
            reading.check = None
            return
        if share.is_closed:
            reading.error = closed_error(share)
        else:
            reading.share = share

    def _is_in_session(self) -> bool:
        """Whether the session has not been ended or replaced: else its member would not acknowledge the records."""
        session = self._session
        return self._broker.share_sessions.find(session.group_id, session.member_id) is session

    def _attempt(self, is_last: bool) -> bool:
        return run_steps(self._attempt_in_steps(is_last))

    def _attempt_in_steps(self, is_last: bool) -> Generator[None, None, bool]:
        """Acquires available records; False if the request should wait for more."""
        if not self._is_in_session():
            return True
        body, candidates = self._body, list[Reading]()
        size, is_failing = 0, False
        bytes_max = max(min(body.max_bytes, self._broker.config.fetch_max_bytes) // len(self._readings), 1)
        for number, reading in enumerate(self._readings, 1):
            offset = self._offset(reading)
            if offset is not None:
                candidates.append(reading)
                if body.min_bytes > 1:
                    size += self._size(reading, offset, bytes_max)
            is_failing = is_failing or bool(reading.error)
            if not number % PARTITIONS_PER_STEP:
                yield
        if is_failing or is_last or size >= body.min_bytes or body.min_bytes <= 1:
            yield from self._take_of(candidates, bytes_max)
            is_failing = is_failing or any(reading.error for reading in self._readings)
        return is_failing or bool(self.got) or body.min_bytes <= 0 or not self._is_in_session()

    def _take_of(self, candidates: list[Reading], bytes_max: int) -> Generator[None, None, None]:
        """Acquires as many records as are wanted. What a candidate has may have moved since the step in which it was looked at."""
        left = self._body.max_records if self._wants_records else 0
        for reading in candidates:
            if left <= 0 or not self._is_in_session():
                return
            offset = self._offset(reading)
            if offset is not None:
                left -= self._take(reading, offset, bytes_max, left)
                yield

    def _offset(self, reading: Reading) -> int | None:
        """The first offset that may be available; None if no record is. Also sets the reading's error."""
        partition, share = reading.partition, reading.share
        if partition is None or share is None or reading.error:
            return None
        if share.is_closed or not partition.is_leading:
            reading.error = closed_error(share)
            return None
        if share.flight.end > partition.log.log_end_offset:
            share.forget_from(partition.log.log_end_offset)
        if reading.check is not None and not reading.check.is_over:
            return None
        offset = share.fetch_offset(partition.log.log_start_offset)
        if offset is None:
            return None
        end = partition.last_stable_offset if share.terms().is_read_committed else partition.high_watermark
        return offset if offset < end else None

    def _size(self, reading: Reading, offset: int, bytes_max: int) -> int:
        assert reading.partition is not None and reading.share is not None
        try:
            read = reading.partition.read(offset, bytes_max, isolation=int(reading.share.terms().is_read_committed))
        except ApiError as error:
            reading.error = error.code
            return 0
        return 0 if read.slice is None else read.slice.length

    def _take(self, reading: Reading, offset: int, bytes_max: int, records_max: int) -> int:
        """Acquires records of one partition; returns how many."""
        partition, share, body = reading.partition, reading.share, self._body
        assert partition is not None and share is not None
        for _ in range(READS_MAX):
            partition.traffic.fetches += 1
            try:
                read = partition.read(offset, bytes_max, isolation=int(share.terms().is_read_committed))
            except ApiError as error:
                partition.traffic.count_refused_fetch(error.code)
                reading.error = error.code
                return 0
            if read.slice is None:
                return 0
            walk = LogWalk(read.slice, read.aborted)
            try:
                acquired = share.acquire(self._session.member_id, offset, walk, records_max, body.batch_size, self._is_record_limit)
            except StorageError as error:
                reading.error = partition.fail(error).code
                return 0
            if acquired:
                piece = walk.piece(acquired[0].first_offset, acquired[-1].last_offset)
                partition.traffic.bytes_out += piece.length
                self.got[reading.place] = Got(piece, acquired)
                return sum(last - first + 1 for first, last, _ in acquired)
            further = share.fetch_offset(partition.log.log_start_offset)
            if further is None or further <= offset:
                return 0
            offset = further  # no record before it may be delivered
        return 0


def _nothing() -> None:
    """What is called at the end of a reading that was answered."""


def closed_error(share: SharePartition) -> ErrorCode:
    """The error of a share partition that is closed. The coordinator may be known later; until then no record is available."""
    is_passing = share.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE if is_passing else share.error or ErrorCode.NOT_LEADER_OR_FOLLOWER


class Answer:
    """Waits for both parts of a request, the acknowledgements and the reading."""

    __slots__ = ("_body", "_broker", "_codes", "_pending", "_request", "fetch")

    def __init__(self, broker: Broker, request: RequestContext, body: ShareFetchRequest, session: ShareSession) -> None:
        self._broker = broker
        self._request = request
        self._body = body
        self._codes: Codes | None = None
        self._pending: Pending | None = None
        self.fetch = ShareFetch(broker, request, body, session, self._maybe_complete)

    def on_acknowledged(self, codes: Codes) -> None:
        self._codes = codes
        self._maybe_complete()

    def finish_or_wait(self) -> ShareFetchResponse | Pending:
        if self.fetch.is_over and self._codes is not None:
            return self._response(self._codes)
        self._pending = Pending()
        self._pending.abandon = self.fetch.abandon
        return self._pending

    def _maybe_complete(self) -> None:
        if self._pending is not None and self.fetch.is_over and self._codes is not None:
            self._pending.complete(self._response(self._codes))

    def _response(self, codes: Codes) -> ShareFetchResponse:
        """Partitions with records, with errors, or with acknowledgements."""
        results: dict[Place, PartitionData] = {}
        leaders: dict[int, None] = {}
        for place, got in self.fetch.got.items():
            result = results[place] = make_result(partition_index=place[1])
            result.records = got.records
            result.acquired_records = [
                make_acquired(first_offset=first, last_offset=last, delivery_count=count) for first, last, count in got.acquired
            ]
        for place, code in self.fetch.outcomes():
            result = self._result(results, place)
            result.error_code = code
            self._name_leader(result, place, code, leaders)
        for place, code in codes.items():
            result = self._result(results, place)
            result.acknowledge_error_code = code
            self._name_leader(result, place, code, leaders)
        response = ShareFetchResponse(responses=by_topic(results))
        quotas, request = self._broker.quotas, self._request
        if quotas is not None and self.fetch.got:
            # The records are sent all the same: they are locked for this member, and no other member could have them.
            size = sum(got.records.length for got in self.fetch.got.values())
            response.throttle_time_ms = quotas.charge_fetch(request.connection.principal, request.client_id, size, is_sent=True)
        response.acquisition_lock_timeout_ms = self._broker.share_partitions.terms_of(self._body.group_id or "").lock_duration_ms
        self.fetch.let_go()
        if leaders:
            response.node_endpoints = [
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in live_brokers(self._broker, self._request)
                if node_id in leaders
            ]
        return response

    def _result(self, results: dict[Place, PartitionData], place: Place) -> PartitionData:
        found = results.get(place)
        if found is None:
            found = results[place] = make_result(partition_index=place[1])
        return found

    def _name_leader(self, result: PartitionData, place: Place, code: ErrorCode, leaders: dict[int, None]) -> None:
        if code in LEADERSHIP_ERRORS:
            leader_id, leader_epoch = leader_of(self._broker, place)
            result.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            leaders[leader_id] = None


def by_topic(results: dict[Place, PartitionData]) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, list[PartitionData]] = {}
    for (topic_id, _), result in results.items():
        topics.setdefault(topic_id, []).append(result)
    return [ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
