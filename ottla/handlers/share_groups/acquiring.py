"""The reading part of ShareFetch: opens the share partitions of a session, acquires records, and waits if there are too few.

Thousands of partitions are opened and read in steps. Between two steps the session may end, other members may acquire records, and the
client may disconnect, so each step checks this again. A waiting request tries again whenever a partition changes or records become
available.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.share_state import SharePartitionKey
from ottla.handlers.context import Broker, PartitionNotifier, RequestContext
from ottla.handlers.records.partition_wait import PartitionWait
from ottla.handlers.rights import is_allowed, require
from ottla.handlers.share_groups.acknowledgements import topic_name
from ottla.handlers.share_groups.log_reads import LogWalk, find_start
from ottla.replication.partition import Partition
from ottla.security.acl import AclOperation, ResourceType
from ottla.sharing.acquisition import RECORD_LIMIT, Acquired
from ottla.sharing.sessions import INITIAL_EPOCH, ShareSession, TopicIdPartition
from ottla.sharing.share_partition import SharePartition, StoredStateCheck
from ottla.storage.file_slice import FileSlice
from ottla.wire.messages.share_fetch import ShareFetchRequest

PARTITIONS_PER_STEP = 20
"""Fewer than `ITEMS_PER_STEP`, because opening a share partition may be a request to its coordinator."""
READS_MAX = 32
"""Maximum number of slices read from one partition in one attempt, while no slice has an available record."""


class Got(NamedTuple):
    records: FileSlice
    acquired: list[Acquired]


class Reading:
    """One partition of the session in this request. After an `error` it is not read again."""

    __slots__ = ("check", "error", "partition", "place", "share")

    def __init__(self, place: TopicIdPartition) -> None:
        self.place = place
        self.partition: Partition | None = None
        self.share: SharePartition | None = None
        self.check: StoredStateCheck | None = None
        self.error = ErrorCode.NONE


class ShareReading:
    """The reading part of a request: tried immediately, and again after each change, until it has ended."""

    __slots__ = (
        "_body", "_broker", "_is_record_limit", "_on_end", "_on_failure", "_readings", "_request", "_session", "_wait", "got",
        "is_over",
    )  # fmt: skip

    def __init__(
        self, broker: Broker, request: RequestContext, body: ShareFetchRequest, session: ShareSession, on_end: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:  # fmt: skip
        self._broker = broker
        self._request = request
        self._body = body
        self._session = session
        self._on_end = on_end
        self._on_failure = on_failure
        self._is_record_limit = body.share_acquire_mode == RECORD_LIMIT
        self._readings: list[Reading] = []
        self._wait: PartitionWait | None = None
        self.got: dict[TopicIdPartition, Got] = {}
        self.is_over = True

    def start(self) -> Generator[None, None, None]:
        """Opens the partitions and makes the first attempt, in steps. Ends early if the session has ended between two steps."""
        if not self._is_in_session():
            return
        for number, place in enumerate(self._session.in_turn(self._body.share_session_epoch), 1):
            self._readings.append(self._open(place))
            if not number % PARTITIONS_PER_STEP:
                yield
                if not self._is_in_session():
                    return
        if not self._readings:
            return
        if self._body.max_wait_ms <= 0 or not self._wants_records:
            yield from self._attempt(True)
        else:
            wait = self._wait = PartitionWait(self._broker.waiters, self._look, self._ended, self._on_failure)
            wait_ms = self._request.connection.wait_ms(self._body.max_wait_ms, self._broker.clock)
            self.is_over = bool((yield from wait.begin_in_steps(self._watched(), wait_ms)))

    def _watched(self) -> list[PartitionNotifier]:
        watched: list[PartitionNotifier] = []
        for reading in self._readings:
            if reading.partition is not None and reading.share is not None:
                watched += (reading.partition.notifier, reading.share.notifier)
        return watched

    def outcomes(self) -> list[tuple[TopicIdPartition, ErrorCode]]:
        """Returns the failed partitions with their errors; every partition if the request opens a session."""
        is_opening = self._body.share_session_epoch == INITIAL_EPOCH
        return [(reading.place, reading.error) for reading in self._readings if reading.error or is_opening]

    def let_go(self) -> None:
        """Breaks the reference cycle with the answer after it was made, so that memory is freed without the garbage collector."""
        self._readings, self._wait, self._on_end, self._on_failure = [], None, _nothing, _ignore

    def abandon(self) -> None:
        """Ends the wait without reading, because the connection is closed."""
        if self._wait is not None:
            self._wait.cancel()

    @property
    def _wants_records(self) -> bool:
        """Whether the request asks for records. A request for 0 records or bytes acquires nothing and does not wait."""
        return self._body.max_records > 0 and self._body.max_bytes > 0

    def _look(self, is_last: bool) -> Generator[None, None, bool | None]:
        """Makes one attempt. Returns True if the reading is over, else None."""
        if not (yield from self._may_go_on()):
            return True
        return (yield from self._attempt(is_last)) or is_last or None

    def _may_go_on(self) -> Generator[None, None, bool]:
        """Whether the principal may still read with the group, because ACLs may have changed during a wait. Sets the error of topics
        without permission. Without the permission on the group nothing is acquired, and the answer has no error.
        """
        broker, request = self._broker, self._request
        if broker.authorizer.allows_clients_everything(request.connection):
            return True
        for number, reading in enumerate(self._readings, 1):
            name = reading.partition.topic_partition.topic if reading.partition is not None else None
            if name is not None and not is_allowed(broker, request, AclOperation.READ, ResourceType.TOPIC, name):
                reading.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if not number % PARTITIONS_PER_STEP:
                yield
        return is_allowed(broker, request, AclOperation.READ, ResourceType.GROUP, self._session.group_id)

    def _ended(self, _result: bool) -> None:
        self.is_over = True
        self._on_end()

    def _open(self, place: TopicIdPartition) -> Reading:
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
        """Finds or creates the share partition. A member that begins to read it first checks its stored state; if it was deleted, the
        share partition is created again. Without memory for it, no record is available."""
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
        """Whether the session still exists. If it was ended or replaced, its member would not acknowledge the records."""
        session = self._session
        return self._broker.share_sessions.find(session.group_id, session.member_id) is session

    @property
    def _is_abandoned(self) -> bool:
        """Whether the connection was closed during an attempt, so that no record may be acquired for the client."""
        return self._wait is not None and self._wait.is_over

    def _attempt(self, is_last: bool) -> Generator[None, None, bool]:
        """Acquires available records. Returns False if the request should wait for more."""
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
                if self._is_abandoned:
                    return False
        if is_failing or is_last or size >= body.min_bytes or body.min_bytes <= 1:
            yield from self._take_of(candidates, bytes_max)
            is_failing = is_failing or any(reading.error for reading in self._readings)
        return is_failing or bool(self.got) or body.min_bytes <= 0 or not self._is_in_session()

    def _take_of(self, candidates: list[Reading], bytes_max: int) -> Generator[None, None, None]:
        """Acquires records until there are as many as wanted. Other members may have acquired a candidate's records meanwhile."""
        left = self._body.max_records if self._wants_records else 0
        for reading in candidates:
            if left <= 0 or not self._is_in_session() or self._is_abandoned:
                return
            offset = self._offset(reading)
            if offset is not None:
                left -= self._take(reading, offset, bytes_max, left)
                yield

    def _offset(self, reading: Reading) -> int | None:
        """Returns the first offset that may be available, or None. Sets the reading's error if the share partition is closed or this broker
        no longer leads the partition."""
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
        """Acquires records of one partition. Returns their number."""
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
                reading.error = partition.read_failed(error).code
                return 0
            if acquired:
                piece = walk.piece(acquired[0].first_offset, acquired[-1].last_offset)
                partition.traffic.bytes_out += piece.length
                self.got[reading.place] = Got(piece, acquired)
                return sum(last - first + 1 for first, last, _ in acquired)
            further = share.fetch_offset(partition.log.log_start_offset)
            if further is None or further <= offset:
                return 0
            offset = further  # No record before this offset is available.
        return 0


def _nothing() -> None:
    """Replaces `on_end` after the answer."""


def _ignore(error: Exception) -> None:
    """Replaces `on_failure` after the answer, when nothing can fail any more."""


def closed_error(share: SharePartition) -> ErrorCode:
    """Returns the error for a share partition that is closed or not led here any more. Returns NONE while its coordinator is not available,
    because clients need not act on that."""
    is_passing = share.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE if is_passing else share.error or ErrorCode.NOT_LEADER_OR_FOLLOWER
