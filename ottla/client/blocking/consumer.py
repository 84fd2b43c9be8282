"""A consumer: partitions given by hand or by a group, read from their leaders.

Each leader has one Fetch under way; when its answer is there, the next one leaves before the records are decoded. Positions belong to the
consumer and move when `poll` gives records out; `commit` writes them for the group. A position that is out of range is reset as
`auto_offset_reset` says, or refused. There is no thread: a member of a group must call `poll` more often than its session times out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import READ_UNCOMMITTED, TopicPartition
from ottla.client.blocking.admin import EARLIEST, LATEST, OffsetAt, grouped, list_offsets
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import Connection
from ottla.client.blocking.group_admin import committed_offsets
from ottla.client.blocking.group_membership import DEFAULT_ASSIGNORS, SESSION_TIMEOUT_MS, GroupMembership
from ottla.client.blocking.readable import readable
from ottla.client.core.fetching import FETCH_BYTES_MAX, MAX_WAIT_MS, PARTITION_BYTES_MAX, Fetched, FetchLimits, fetch_request, read_answer
from ottla.client.errors import RETRIABLE, KafkaError, MalformedResponseError, TransportError, refused

__all__ = ["PARTITION_BYTES_MAX", "Consumer"]

AUTO_COMMIT_INTERVAL_S = 5.0

_BACKOFF_S = 0.05


class Consumer:
    """Reads partitions given by `assign`, or by a group after `subscribe`. Not for use by two threads at once.

    There is no thread: a member of a group calls `poll` more often than its session times out. `with` leaves the group at the end.
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
    ) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.isolation_level = isolation_level
        self.auto_offset_reset = auto_offset_reset
        self.is_auto_commit = is_auto_commit and group_id is not None
        self.limits = FetchLimits(max_wait_ms, min_bytes, FETCH_BYTES_MAX, partition_bytes_max)
        self.positions: dict[TopicPartition, int] = {}
        self.membership: GroupMembership | None = None
        self._member_options: dict[str, Any] = {
            "session_timeout_ms": session_timeout_ms,
            "assignors": tuple(assignors),
            "instance_id": instance_id,
        }
        self._connections: dict[int, Connection] = {}
        self._asked: dict[int, dict[TopicPartition, int]] = {}
        self._pauses: dict[TopicPartition, float] = {}
        self._order: deque[TopicPartition] = deque()
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at = 0.0

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._drop_connections()

    # What is read

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions from these offsets; `EARLIEST` and `LATEST` are looked up now."""
        found = {partition: offset for partition, offset in positions.items() if offset >= 0}
        named = {partition: offset for partition, offset in positions.items() if offset < 0}
        found.update(self._look_up(named))
        self.positions = found
        self._order = deque(sorted(found))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Joins the group; from now on `poll` reads the partitions that it assigns."""
        assert self.group_id is not None, "a subscription needs a group"
        self.membership = GroupMembership(self.cluster, self.group_id, sorted(set(topics)), **self._member_options)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Sets the offset of the next record to read from an assigned partition."""
        assert partition in self.positions, f"{partition} is not being read"
        self.positions[partition] = offset

    def _look_up(self, named: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """EARLIEST and LATEST (under read_committed the last stable offset) as numbers."""
        found: dict[TopicPartition, int] = {}
        if named:
            for partition, result in list_offsets(self.cluster, named, isolation_level=self.isolation_level).items():
                if not isinstance(result, OffsetAt):
                    raise result
                found[partition] = result.offset
        return found

    # Reading

    def poll(self, timeout_s: float) -> list[Fetched]:
        """The batches that have arrived, after at most `timeout_s`; empty when there are none."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self.membership is not None:
                self._keep_membership()
            self._send_fetches()
            left = deadline - time.monotonic()
            found = self._take_answers(max(0.0, min(left, self._patience())))
            if found:
                if self.is_auto_commit and time.monotonic() >= self._commit_at:
                    self.commit(except_for=found)
                return found
            if left <= 0:
                return []

    def _patience(self) -> float:
        """How long to wait for data before something else is due, in seconds."""
        if self.membership is not None:
            return min(self.membership.heartbeat_interval_s, 1.0)
        return _BACKOFF_S if not self._asked else 1.0

    def _send_fetches(self) -> None:
        """One Fetch for each leader that has none under way, with all of its assigned partitions."""
        busy = {partition for asked in self._asked.values() for partition in asked}
        now = time.monotonic()
        idle = [p for p in self._order if p not in busy and self._pauses.get(p, 0.0) <= now]
        if not idle:
            return
        self._order.rotate(-1)
        for broker_id, partitions in self.cluster.by_leader(idle).items():
            if broker_id not in self._asked:
                self._fetch_from(broker_id, partitions)

    def _fetch_from(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        asked = {partition: self.positions[partition] for partition in partitions}
        request = fetch_request(asked, self.isolation_level, self.limits)
        connection = self._connections.get(broker_id)
        if connection is None or not connection.is_open:
            connection = self._connections[broker_id] = self.cluster.new_connection(broker_id)
        connection.send(request)
        self._asked[broker_id] = asked

    def _take_answers(self, timeout_s: float) -> list[Fetched]:
        if not self._asked:
            time.sleep(timeout_s)
            return []
        waiting = {self._connections[broker_id].fileno(): broker_id for broker_id in self._asked}
        ready = readable(list(waiting), timeout_s)
        found: list[Fetched] = []
        for number in ready:
            broker_id = waiting[number]
            asked = self._asked.pop(broker_id)
            try:
                answer = self._connections[broker_id].receive()
            except MalformedResponseError:
                raise
            except TransportError:
                self._pause(asked)
                continue
            found += self._read_answer(asked, answer, str(self._connections[broker_id].address))
        if found:
            self._send_fetches()
        return found

    def _read_answer(self, asked: Mapping[TopicPartition, int], answer: Any, address: str) -> list[Fetched]:
        """Moves the positions: batches that are returned count as read."""
        found = []
        # A partition that was revoked, or sought elsewhere, while the request was under way is skipped.
        still = {partition: start for partition, start in asked.items() if self.positions.get(partition) == start}
        for one in read_answer(still, answer, self.isolation_level, address):
            if not isinstance(one, Fetched):
                self._recover(*one)
            elif one.next_offset > one.start:
                self.positions[one.partition] = one.next_offset
                found.append(one)
        return found

    def _recover(self, partition: TopicPartition, error: KafkaError) -> None:
        code = error.code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self.auto_offset_reset not in ("earliest", "latest"):
                message = f"offset {self.positions[partition]} of {partition} does not exist (any more); say where to start instead"
                raise refused(code, message)
            target = EARLIEST if self.auto_offset_reset == "earliest" else LATEST
            self.positions.update(self._look_up({partition: target}))
        elif code in RETRIABLE:
            self._pause([partition])
        else:
            raise error

    def _pause(self, partitions: Iterable[TopicPartition]) -> None:
        until = time.monotonic() + _BACKOFF_S
        for partition in partitions:
            self._pauses[partition] = until
            self.cluster.forget([partition])

    # The group

    def _keep_membership(self) -> None:
        membership = self.membership
        assert membership is not None
        if membership.must_join() and self.is_auto_commit and self.positions:
            self.commit()
        assignment = membership.keep_alive()
        if assignment is not None:
            self._take_over(assignment)

    def _take_over(self, assignment: Sequence[TopicPartition]) -> None:
        """Sets the assignment: new partitions begin at the committed offsets, kept ones go on."""
        assert self.group_id is not None
        kept = {partition: self.positions[partition] for partition in assignment if partition in self.positions}
        new = [partition for partition in assignment if partition not in kept]
        committed = committed_offsets(self.cluster, self.group_id, require_stable=True) if new else {}
        start = EARLIEST if self.auto_offset_reset == "earliest" else LATEST
        named = {}
        for partition in new:
            if partition in committed:
                kept[partition] = committed[partition].offset
            elif self.auto_offset_reset == "none":
                raise refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"group {self.group_id!r} has no offset for {partition}")
            else:
                named[partition] = start
        kept.update(self._look_up(named))
        self.positions = kept
        self._committed = {partition: offset for partition, offset in self._committed.items() if partition in kept}
        self._order = deque(sorted(kept))
        self._commit_at = time.monotonic() + AUTO_COMMIT_INTERVAL_S

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, except_for: Sequence[Fetched] = ()) -> None:
        """Commits positions for the group; `except_for` are batches that the caller has not processed yet."""
        self._commit_at = time.monotonic() + AUTO_COMMIT_INTERVAL_S
        wanted = dict(self.positions if offsets is None else offsets)
        for fetched in except_for:
            wanted[fetched.partition] = fetched.start
        changed = {partition: offset for partition, offset in wanted.items() if self._committed.get(partition) != offset}
        if not changed or self.group_id is None:
            return
        from ottla.client.blocking.group_admin import commit_offsets

        generation, member_id = (-1, "") if self.membership is None else (self.membership.generation, self.membership.member_id)
        results = commit_offsets(self.cluster, self.group_id, changed, generation=generation, member_id=member_id)
        for partition, failed in results.items():
            if failed is None:
                self._committed[partition] = changed[partition]
            elif failed.code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
                # Others go on from the last commit: the records since then are read twice, none is lost.
                if self.membership is not None:
                    self.membership.rejoin()
                return
            else:
                raise failed

    def close(self) -> None:
        """Commits if that is automatic, and leaves the group."""
        try:
            if self.is_auto_commit and self.positions:
                self.commit()
            if self.membership is not None:
                self.membership.leave()
        finally:
            self._drop_connections()

    def _drop_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._asked.clear()

    # Where things are

    def topic_partitions(self) -> list[tuple[str, list[int]]]:
        """The partitions that are being read, by topic."""
        return sorted(grouped(self.positions).items())
