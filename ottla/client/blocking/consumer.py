"""A consumer: partitions given by hand or by a group, read from their leaders.

Each leader has one Fetch in flight. When its answer arrives, the next Fetch is sent before the records are decoded. Records wait in the
consumer until `poll` returns them, and only then do the positions advance (`_hand_out`): an error in between loses no record. `commit`
writes positions for the group, so with automatic commits a call of `poll` commits what earlier calls have returned.

A partition without a position gets one before it is read: from the group's commit, or as `auto_offset_reset` says. A partition whose
leader is away pauses, and delays no other. There is no thread: a member of a group must call `poll` more often than its session times out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import READ_UNCOMMITTED, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import Connection, first_ready
from ottla.client.blocking.group_membership import DEFAULT_ASSIGNORS, METADATA_AGE_S, SESSION_TIMEOUT_MS, GroupMembership
from ottla.client.blocking.owner import Owner, owned
from ottla.client.core.admin import EARLIEST, LATEST, OffsetAt, grouped, list_offsets
from ottla.client.core.fetching import FETCH_BYTES_MAX, MAX_WAIT_MS, PARTITION_BYTES_MAX, Fetched, FetchLimits, fetch_request, read_answer
from ottla.client.core.group_admin import Committed, commit_offsets, committed_offsets
from ottla.client.errors import RETRIABLE, KafkaError, MalformedResponseError, TransportError, UsageError, refused

__all__ = ["PARTITION_BYTES_MAX", "Consumer", "topic_names"]

AUTO_COMMIT_INTERVAL_S = 5.0

_BACKOFF_S = 0.05
_RESETS = ("earliest", "latest", "none")
_OLD_MEMBER = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


def topic_names(topics: Iterable[str]) -> list[str]:
    """The names of a subscription. `UsageError` for a single str, whose letters would be the topics, and for an empty list."""
    names = [topics] if isinstance(topics, str | bytes) else sorted(set(topics))
    if isinstance(topics, str | bytes) or not names or not all(isinstance(name, str) and name for name in names):
        raise UsageError(f"topics is a list of names, not {topics!r:.100}")
    return [str(name) for name in names]


class Consumer:
    """Reads partitions given by `assign`, or by a group after `subscribe`. One thread at a time may use it; a forked child may not.

    There is no thread: a member of a group calls `poll` more often than its session times out. At the end of `with` the consumer ends its
    membership, also after an exception. After an exception nothing is committed.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        group_id: str | None = None,
        isolation_level: int = READ_UNCOMMITTED,
        auto_offset_reset: str = "latest",
        is_auto_commit: bool = False,
        partition_bytes_max: int = PARTITION_BYTES_MAX,
        min_bytes: int = 1,
        max_wait_ms: int = MAX_WAIT_MS,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        assignors: Sequence[str] = DEFAULT_ASSIGNORS,
        instance_id: str | None = None,
        metadata_age_s: float = METADATA_AGE_S,
    ) -> None:
        if auto_offset_reset not in _RESETS:
            raise UsageError(f"auto_offset_reset is one of {', '.join(_RESETS)}, not {auto_offset_reset!r}")
        self.cluster = cluster
        self.owner = Owner("consumer")
        self.group_id = group_id
        self.isolation_level = isolation_level
        self.auto_offset_reset = auto_offset_reset
        self.is_auto_commit = is_auto_commit and group_id is not None
        self.limits = FetchLimits(max_wait_ms, min_bytes, FETCH_BYTES_MAX, partition_bytes_max)
        self.positions: dict[TopicPartition, int] = {}
        """The offset of the next record that `poll` returns, for each partition that is read."""
        self.membership: GroupMembership | None = None
        self._member_options: dict[str, Any] = {
            "session_timeout_ms": session_timeout_ms,
            "assignors": tuple(assignors),
            "instance_id": instance_id,
            "metadata_age_s": metadata_age_s,
        }
        self._connections: dict[int, Connection] = {}
        self._asked: dict[int, dict[TopicPartition, int]] = {}
        self._arrived: deque[Fetched] = deque()
        self._failure: KafkaError | TransportError | None = None
        """An error of a partition, to be raised when all that has arrived is returned."""
        self._unplaced: dict[TopicPartition, bool] = {}
        """Partitions that are assigned and have no position yet, and whether the group's commit gives it."""
        self._pauses: dict[TopicPartition, float] = {}
        self._order: deque[TopicPartition] = deque()
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at = 0.0

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(may_commit=kind is None)

    # Assignment and positions

    @owned
    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions from these offsets; `EARLIEST` and `LATEST` are looked up now."""
        found = {partition: offset for partition, offset in positions.items() if offset >= 0}
        named = {partition: offset for partition, offset in positions.items() if offset < 0}
        for partition, offset in self._look_up(named).items():
            if isinstance(offset, KafkaError):
                raise offset
            found[partition] = offset
        self.positions, self._unplaced = found, {}
        self._order = deque(sorted(found))
        self._commit_at = time.monotonic() + AUTO_COMMIT_INTERVAL_S

    @owned
    def subscribe(self, topics: Iterable[str]) -> None:
        """Joins the group; from now on `poll` reads the partitions that it assigns."""
        names = topic_names(topics)
        if self.group_id is None:
            raise UsageError("a subscription needs a group: name it when the consumer is made")
        if self.membership is not None:
            self.membership.leave()
        self.membership = GroupMembership(self.cluster, self.group_id, names, **self._member_options)

    @owned
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Sets the offset of the next record to read from an assigned partition."""
        if partition not in self.positions and partition not in self._unplaced:
            raise UsageError(f"{partition} is not being read: assign it, or wait until the group has assigned it")
        self._unplaced.pop(partition, None)
        self.positions[partition] = offset

    def _look_up(self, named: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """EARLIEST and LATEST (under read_committed the last stable offset) as numbers."""
        if not named:
            return {}
        results = list_offsets(self.cluster, named, isolation_level=self.isolation_level)
        return {partition: result.offset if isinstance(result, OffsetAt) else result for partition, result in results.items()}

    # Reading

    @owned
    def poll(self, timeout_s: float) -> list[Fetched]:
        """The batches that have arrived, after at most `timeout_s`; empty when there are none.

        The error of a partition is raised by the call after the one that returns what has arrived before it.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if self.membership is not None:
                self._keep_membership(self.membership)
            if self.is_auto_commit and time.monotonic() >= self._commit_at:
                self.commit()
            if found := self._hand_out():
                return found
            self._raise_failure()
            self._place()
            self._send_fetches()
            left = deadline - time.monotonic()
            self._take_answers(max(0.0, min(left, self._patience())))
            if left <= 0 and not self._arrived and self._failure is None:
                return []

    def _hand_out(self) -> list[Fetched]:
        """Returns the records that arrived for the current positions. Only this method advances positions, to the end of the returned
        records."""
        found: list[Fetched] = []
        while self._arrived:
            one = self._arrived.popleft()
            if self.positions.get(one.partition) == one.start:
                self.positions[one.partition] = one.next_offset
                found.append(one)
        return found

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _patience(self) -> float:
        """How long to wait for data before something else is due, in seconds."""
        if self._unplaced or self._pauses:
            return _BACKOFF_S
        if self.membership is not None:
            return min(self.membership.heartbeat_interval_s, 1.0)
        return _BACKOFF_S if not self._asked else 1.0

    def _next_fetch(self, partition: TopicPartition) -> int:
        """Where the next Fetch of a partition begins: behind all that has arrived."""
        offset = self.positions[partition]
        for one in self._arrived:
            if one.partition == partition and one.start == offset:
                offset = one.next_offset
        return offset

    def _send_fetches(self) -> None:
        """One Fetch for each leader that has none under way, with all of its assigned partitions."""
        busy = {partition for asked in self._asked.values() for partition in asked}
        now = time.monotonic()
        self._pauses = {partition: until for partition, until in self._pauses.items() if until > now}
        idle = [p for p in self._order if p in self.positions and p not in busy and p not in self._pauses]
        if not idle:
            return
        self._order.rotate(-1)
        leaders, missing = self.cluster.leaders(idle)
        for partition, error in missing.items():
            self._fail(partition, error)
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._failure = self._failure or error
        for broker_id, partitions in leaders.items():
            if broker_id not in self._asked:
                self._fetch_from(broker_id, partitions)

    def _fetch_from(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        asked = {partition: self._next_fetch(partition) for partition in partitions}
        request = fetch_request(asked, self.isolation_level, self.limits)
        try:
            connection = self._connections.get(broker_id)
            if connection is None or not connection.is_open or connection.in_flight:
                connection = self._connections[broker_id] = self.cluster.new_connection(broker_id)
            connection.send(request)
        except MalformedResponseError:
            raise
        except TransportError:
            self._pause(partitions)
            return
        except KafkaError as error:
            if error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                raise
            self._pause(partitions)
            return
        self._asked[broker_id] = asked

    def _take_answers(self, timeout_s: float) -> None:
        """Takes the answers that are there; waits for the first one at most `timeout_s`."""
        for broker_id in first_ready({broker_id: self._connections[broker_id] for broker_id in self._asked}, timeout_s):
            asked, connection = self._asked.pop(broker_id), self._connections[broker_id]
            try:
                answer = connection.receive()
            except MalformedResponseError:
                raise
            except TransportError:
                self._pause(asked)
                continue
            self._read_answer(asked, answer, str(connection.address))
        if self._arrived:
            self._send_fetches()

    def _read_answer(self, asked: Mapping[TopicPartition, int], answer: Any, address: str) -> None:
        # A partition that was revoked, or sought elsewhere, while the request was under way is skipped.
        still = {
            partition: start for partition, start in asked.items() if partition in self.positions and self._next_fetch(partition) == start
        }
        for one in read_answer(still, answer, self.isolation_level, address):
            if not isinstance(one, Fetched):
                self._fail(*one)
            elif one.next_offset > one.start:
                self._arrived.append(one)

    def _fail(self, partition: TopicPartition, error: KafkaError) -> None:
        """A partition pauses, is placed again if its position is out of range, or has its error raised by `poll`."""
        self._pause([partition])
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self.auto_offset_reset != "none":
            del self.positions[partition]
            self._unplaced[partition] = False
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            message = f"offset {self._next_fetch(partition)} of {partition} does not exist (any more); say where to start instead"
            self._failure = self._failure or refused(error.code, message)
        elif error.code not in RETRIABLE:
            self._failure = self._failure or error

    def _pause(self, partitions: Sequence[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        self._wait_with(partitions)
        self.cluster.forget(partitions)

    def _wait_with(self, partitions: Iterable[TopicPartition]) -> None:
        until = time.monotonic() + _BACKOFF_S
        self._pauses.update((partition, until) for partition in partitions)

    # Where to begin

    def _place(self) -> None:
        """Gives partitions without a position one. Those without one for now are tried again; the others are read meanwhile."""
        now = time.monotonic()
        waiting = [partition for partition in self._unplaced if self._pauses.get(partition, 0.0) <= now]
        if not waiting:
            return
        self._wait_with(waiting)
        try:
            named = self._place_at_commits(waiting)
            for partition, offset in self._look_up(named).items():
                if not isinstance(offset, KafkaError):
                    self._placed(partition, offset)
                elif offset.code not in RETRIABLE:
                    raise offset
        except (KafkaError, TransportError) as error:
            self._failure = self._failure or error

    def _place_at_commits(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Sets the positions of partitions that have a committed offset. Returns where the others begin, for ListOffsets."""
        committed: Mapping[TopicPartition, Committed] = {}
        if any(self._unplaced[partition] for partition in partitions):
            assert self.group_id is not None, "a commit is of a group"
            committed = committed_offsets(self.cluster, self.group_id, require_stable=True)
        named: dict[TopicPartition, int] = {}
        for partition in partitions:
            if self._unplaced[partition] and partition in committed:
                self._placed(partition, committed[partition].offset)
            elif self.auto_offset_reset == "none":
                raise refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"group {self.group_id!r} has no offset for {partition}")
            else:
                named[partition] = EARLIEST if self.auto_offset_reset == "earliest" else LATEST
        return named

    def _placed(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset
        del self._unplaced[partition]
        self._pauses.pop(partition, None)

    # The group

    def _keep_membership(self, membership: GroupMembership) -> None:
        """Does what the membership needs, and takes over a new assignment. Of a membership that was lost no position is of use."""
        self._forget_lost(membership)
        if membership.must_join() and self.is_auto_commit and self.positions:
            self.commit()
        try:
            assignment = membership.keep_alive()
        finally:
            self._forget_lost(membership)
        if assignment is not None:
            self._take_over(assignment)

    def _forget_lost(self, membership: GroupMembership) -> None:
        if membership.is_new:
            membership.is_new = False
            self.positions, self._unplaced, self._committed = {}, {}, {}

    def _take_over(self, assignment: Sequence[TopicPartition]) -> None:
        """Sets the assignment: kept partitions go on, new ones are placed at the committed offsets."""
        self._unplaced = {partition: self._unplaced.get(partition, True) for partition in assignment if partition not in self.positions}
        self.positions = {partition: self.positions[partition] for partition in assignment if partition in self.positions}
        self._committed = {partition: offset for partition, offset in self._committed.items() if partition in self.positions}
        self._order = deque(sorted(assignment))
        self._commit_at = time.monotonic() + AUTO_COMMIT_INTERVAL_S

    @owned
    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, except_for: Sequence[Fetched] = ()) -> None:
        """Commits positions for the group; `except_for` are batches that `poll` has returned and the caller has not processed yet."""
        self._commit_at = time.monotonic() + AUTO_COMMIT_INTERVAL_S
        wanted = dict(self.positions if offsets is None else offsets)
        for fetched in except_for:
            wanted[fetched.partition] = min(fetched.start, wanted.get(fetched.partition, fetched.start))
        changed = {partition: offset for partition, offset in wanted.items() if self._committed.get(partition) != offset}
        if not changed or self.group_id is None:
            return
        generation, member_id = (-1, "") if self.membership is None else (self.membership.generation, self.membership.member_id)
        results = commit_offsets(self.cluster, self.group_id, changed, generation=generation, member_id=member_id)
        refusals: list[KafkaError] = []
        for partition, failed in results.items():
            if failed is None:
                self._committed[partition] = changed[partition]
            else:
                refusals.append(failed)
        for failed in refusals:
            if failed.code not in _OLD_MEMBER or self.membership is None:
                raise failed
            # Others go on from the last commit: the records since then are read twice, none is lost.
            self.membership.join_again(failed.code)

    def close(self, *, may_commit: bool = True) -> None:
        """Commits if commits are automatic and `may_commit`, and ends the membership. In a forked child it only closes its copies."""
        if self.owner.is_in_child:
            self._drop_connections()
        else:
            self._leave(may_commit)

    @owned
    def _leave(self, may_commit: bool) -> None:
        with ExitStack() as steps:
            steps.callback(self._drop_connections)
            if self.membership is not None:
                steps.callback(self.membership.leave)
            if self.is_auto_commit and self.positions and may_commit:
                self.commit()

    def _drop_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._asked.clear()

    # Where things are

    def topic_partitions(self) -> list[tuple[str, list[int]]]:
        """The partitions that are being read, by topic."""
        return sorted(grouped(self.positions).items())
