"""`Consumer`: reads the partitions that the program or a consumer group assigns, from their leaders.

Each leader has at most one Fetch in flight. When its answer arrives, the next Fetch is sent before the records are decoded. Fetched records
are kept until `poll` returns them. The positions advance only then, so an error before that loses no record. `commit` commits the positions
for the group. With automatic commits `poll` commits the records that earlier calls have returned, every `AUTO_COMMIT_INTERVAL_S` and before
a rebalance.

The first position of a partition is the group's committed offset, or follows from `auto_offset_reset`. A partition without a reachable
leader pauses and does not delay the others.

`poll` waits only for records. Joins, heartbeats, automatic commits, and look-ups of positions, leaders and connections run in threads as
background calls (`blocking/background_calls.py`), and `poll` processes their results. While the consumer joins, or checks whether its
session has expired, `poll` returns no records: another member may own their partitions. There is no background heartbeat: a member of a
group must call `poll` more often than its session times out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

from ottla.base.errors import ErrorCode
from ottla.base.types import READ_UNCOMMITTED, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.group_membership import DEFAULT_ASSIGNORS, METADATA_AGE_S, SESSION_TIMEOUT_MS, GroupMembership
from ottla.client.blocking.owner import CallOwner, owned
from ottla.client.blocking.routes import PAUSE_S, FetchRoutes, is_away
from ottla.client.core.admin import EARLIEST, LATEST, OffsetAt, list_offsets
from ottla.client.core.arguments import checked
from ottla.client.core.fetching import FETCH_BYTES_MAX, MAX_WAIT_MS, PARTITION_BYTES_MAX, Fetched, FetchLimits, fetch_request, read_answer
from ottla.client.core.group_admin import Committed, commit_offsets, committed_offsets
from ottla.client.errors import RETRIABLE, KafkaError, TransportError, UsageError, refused

__all__ = ["PARTITION_BYTES_MAX", "Consumer", "topic_names"]

P = ParamSpec("P")

AUTO_COMMIT_INTERVAL_S = 5.0

_MEMBERSHIP, _COMMIT, _POSITIONS = ("membership",), ("commit",), ("positions",)
"""The keys of background calls: heartbeats and joins, automatic commits, and look-ups of positions."""
_RESETS = ("earliest", "latest", "none")
_OLD_MEMBER = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


def topic_names(topics: Iterable[str]) -> list[str]:
    """Returns the sorted names of a subscription. Raises `UsageError` for an empty list and an empty name."""
    names = sorted(set(topics))
    if not all(names) or not names:
        raise UsageError(f"topics must be the names of one or more topics, not {names!r:.100}")
    return names


def _delivering(poll: Callable[Concatenate[Consumer, P], list[Fetched]]) -> Callable[Concatenate[Consumer, P], list[Fetched]]:
    """Decorates `Consumer.poll`: moves the positions after it."""

    @wraps(poll)
    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> list[Fetched]:
        found = poll(self, *args, **kwargs)
        # No call follows before the return: Python runs signal handlers after calls, so their exceptions lose no batch.
        self.positions, self._arrived = self._after_poll
        return found

    return call


class Consumer:
    """Reads partitions given by `assign`, or by a group after `subscribe`. One thread at a time may use it; a forked child may not.

    A member of a group must call `poll` more often than its session times out. `poll(0)` does not wait for any broker. The end of `with`
    ends the membership, also after an exception; after an exception it commits nothing.
    """

    @checked
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
        if not assignors or not set(assignors) <= set(DEFAULT_ASSIGNORS):
            raise UsageError(f"assignors is a list of {', '.join(DEFAULT_ASSIGNORS)}, not {assignors!r:.100}")
        self.cluster = cluster
        self.owner = CallOwner("consumer")
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
        self._routes = FetchRoutes(cluster)
        self._asked: dict[int, dict[TopicPartition, int]] = {}
        self._call_may_revoke = False
        """Whether the last background call of the membership is a join, or a check whether the session has expired."""
        self._has_committed = False
        """Whether the automatic commit before the next join has begun."""
        self._arrived: deque[Fetched] = deque()
        self._after_poll = self.positions, self._arrived
        """The positions and arrived batches after the batches that `poll` is about to return."""
        self._failure: KafkaError | TransportError | None = None
        """The error of a partition. `poll` raises it when all records that have arrived are returned."""
        self._without_position: dict[TopicPartition, bool] = {}
        """Assigned partitions without a position, and whether the group's committed offset may be used."""
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
        """Replaces the assignment: reads these partitions from these offsets. Waits for brokers to look up `EARLIEST` and `LATEST`, and
        raises `KafkaError` if that fails.
        """
        found = {partition: offset for partition, offset in positions.items() if offset >= 0}
        named = {partition: offset for partition, offset in positions.items() if offset < 0}
        for partition, offset in self._look_up(named).items():
            if isinstance(offset, KafkaError):
                raise offset
            found[partition] = offset
        self._routes.background_calls.abandon(_POSITIONS)
        self.positions, self._without_position = found, {}
        self._order = deque(sorted(found))
        self._commit_at = time.monotonic() + AUTO_COMMIT_INTERVAL_S

    @owned
    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribes to topics. `poll` then joins the group and reads the partitions that the group assigns."""
        names = topic_names(topics)
        if self.group_id is None:
            raise UsageError("a subscription needs a group: name it when the consumer is made")
        self._end_membership()
        self.membership = GroupMembership(self.cluster, self.group_id, names, **self._member_options)

    @owned
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Sets the offset of the next record to read from an assigned partition."""
        if partition not in self.positions and partition not in self._without_position:
            raise UsageError(f"{partition} is not being read: assign it, or wait until the group has assigned it")
        self._without_position.pop(partition, None)
        self.positions[partition] = offset

    def _look_up(self, named: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Returns the offsets of EARLIEST and LATEST; under read_committed LATEST is the last stable offset."""
        if not named:
            return {}
        results = list_offsets(self.cluster, named, isolation_level=self.isolation_level)
        return {partition: result.offset if isinstance(result, OffsetAt) else result for partition, result in results.items()}

    # Reading

    @_delivering
    @owned
    def poll(self, timeout_s: float) -> list[Fetched]:
        """Returns the batches that have arrived, after at most `timeout_s`. The result is empty if there are none.

        The error of a partition is kept until all batches that have arrived are returned. The next call raises it.
        """
        deadline = time.monotonic() + timeout_s
        with self._routes.change:
            while True:
                self._routes.background_calls.take_in()
                self._keep_group()
                if not self._may_be_revoked:
                    found, positions = self._due()
                    if found:
                        self._after_poll = positions, deque()
                        return found
                    self._arrived.clear()
                    self._raise_failure()
                    self._begin_look_ups()
                    self._send_fetches()
                left = deadline - time.monotonic()
                self._take_answers(max(0.0, min(left, self._patience())))
                if left <= 0 and (self._may_be_revoked or not (self._arrived or self._failure)):
                    self._after_poll = self.positions, self._arrived
                    return []

    def _due(self) -> tuple[list[Fetched], dict[TopicPartition, int]]:
        """Returns the batches that begin at the current positions, and the positions after them."""
        found, positions = list[Fetched](), dict(self.positions)
        for one in self._arrived:
            if positions.get(one.partition) == one.start:
                positions[one.partition] = one.next_offset
                found.append(one)
        return found, positions

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _patience(self) -> float:
        """Returns how long to wait for records before other work may be due, in seconds."""
        if self._without_position or self._routes.pauses:
            return PAUSE_S
        if self.membership is not None:
            return min(self.membership.heartbeat_interval_s, 1.0)
        return PAUSE_S if self._routes.is_idle else 1.0

    def _next_fetch(self, partition: TopicPartition) -> int:
        """Returns the offset of a partition's next Fetch, after all records that have arrived."""
        offset = self.positions[partition]
        for one in self._arrived:
            if one.partition == partition and one.start == offset:
                offset = one.next_offset
        return offset

    def _send_fetches(self) -> None:
        """Sends one Fetch to each leader without a Fetch in flight, for all its partitions that have a position and do not pause."""
        self._asked = {broker_id: asked for broker_id, asked in self._asked.items() if self._routes.awaits(broker_id)}
        busy = {partition for asked in self._asked.values() for partition in asked}
        self._routes.end_pauses()
        idle = [p for p in self._order if p in self.positions and p not in busy and p not in self._routes.pauses]
        if not idle:
            return
        asked = len(self._asked)
        for broker_id, partitions in self._routes.by_leader(idle, self._without_leader).items():
            if broker_id not in self._asked:
                self._fetch_from(broker_id, partitions)
        if len(self._asked) > asked:
            self._order.rotate(-1)

    def _without_leader(self, reasons: Mapping[TopicPartition, KafkaError]) -> None:
        for partition, error in reasons.items():
            if partition in self.positions:
                self._fail(partition, error)
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._failure = self._failure or error

    def _fetch_from(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        failed = partial(self._not_reached, partitions)
        if self._routes.connection(broker_id, failed) is None:
            return
        asked = {partition: self._next_fetch(partition) for partition in partitions}
        try:
            self._routes.post(broker_id, fetch_request(asked, self.isolation_level, self.limits))
        except TransportError as error:
            failed(error)
            return
        self._asked[broker_id] = asked

    def _not_reached(self, partitions: Iterable[TopicPartition], error: KafkaError | TransportError) -> None:
        """Pauses the partitions if their leader is unreachable. Raises any other error."""
        if not is_away(error):
            raise error
        self._routes.pause(partitions)

    def _take_answers(self, timeout_s: float) -> None:
        """Processes the answers that have arrived. Waits at most `timeout_s` for the first one."""
        for broker_id, answer in self._routes.answers(timeout_s):
            asked = self._asked.pop(broker_id)
            if isinstance(answer, TransportError):
                self._not_reached(asked, answer)
            else:
                self._read_answer(asked, answer, str(self._routes.connections[broker_id].address))
        if self._arrived and not self._may_be_revoked:
            self._send_fetches()

    def _read_answer(self, asked: Mapping[TopicPartition, int], answer: Any, address: str) -> None:
        # Skips a partition that was revoked, or whose position was changed by `seek`, while the request was in flight.
        still = {
            partition: start for partition, start in asked.items() if partition in self.positions and self._next_fetch(partition) == start
        }
        for one in read_answer(still, answer, self.isolation_level, address):
            if not isinstance(one, Fetched):
                self._fail(*one)
            elif one.next_offset > one.start:
                self._arrived.append(one)

    def _fail(self, partition: TopicPartition, error: KafkaError) -> None:
        """Pauses a partition. If its position is out of range, looks for a new position as `auto_offset_reset` says. `poll` raises other
        permanent errors.
        """
        self._routes.pause([partition])
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self.auto_offset_reset != "none":
            del self.positions[partition]
            self._without_position[partition] = False
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            message = f"offset {self._next_fetch(partition)} of {partition} does not exist (any more); say where to start instead"
            self._failure = self._failure or refused(error.code, message)
        elif error.code not in RETRIABLE:
            self._failure = self._failure or error

    # Where to begin

    def _begin_look_ups(self) -> None:
        """Begins to look up the positions of partitions without one. Other partitions are read meanwhile."""
        now = time.monotonic()
        pauses = self._routes.pauses
        waiting = {partition: by_commit for partition, by_commit in self._without_position.items() if pauses.get(partition, 0.0) <= now}
        if waiting:
            look_up, failed = partial(self._look_up_positions, waiting), partial(self._look_up_failed, waiting)
            self._routes.background_calls.begin(_POSITIONS, look_up, self._take_positions, failed)

    def _look_up_positions(self, partitions: Mapping[TopicPartition, bool]) -> dict[TopicPartition, int | KafkaError]:
        """Returns the first positions: the group's committed offset if it may be used, else as `auto_offset_reset` says."""
        committed: Mapping[TopicPartition, Committed] = {}
        if any(partitions.values()):
            assert self.group_id is not None, "a commit is of a group"
            committed = committed_offsets(self.cluster, self.group_id, require_stable=True)
        found: dict[TopicPartition, int | KafkaError] = {}
        named: dict[TopicPartition, int] = {}
        for partition, by_commit in partitions.items():
            if by_commit and partition in committed:
                found[partition] = committed[partition].offset
            elif self.auto_offset_reset == "none":
                message = f"group {self.group_id!r} has no offset for {partition}"
                found[partition] = refused(ErrorCode.OFFSET_OUT_OF_RANGE, message)
            else:
                named[partition] = EARLIEST if self.auto_offset_reset == "earliest" else LATEST
        return {**found, **self._look_up(named)}

    def _take_positions(self, found: Mapping[TopicPartition, int | KafkaError]) -> None:
        for partition, offset in found.items():
            if not isinstance(offset, KafkaError):
                self._set_position(partition, offset)
            else:
                self._look_up_failed([partition], offset)

    def _look_up_failed(self, partitions: Iterable[TopicPartition], error: KafkaError | TransportError) -> None:
        """Pauses partitions whose position could not be looked up. `poll` raises a permanent error."""
        self._routes.wait_with(partitions)
        if not (isinstance(error, KafkaError) and error.is_retriable):
            self._failure = self._failure or error

    def _set_position(self, partition: TopicPartition, offset: int) -> None:
        if partition in self._without_position:  # not revoked, and `seek` has not set its position
            self.positions[partition] = offset
            del self._without_position[partition]
            self._routes.pauses.pop(partition, None)

    # The group

    @property
    def _may_be_revoked(self) -> bool:
        """Whether a background call is joining the group, or checking whether the session has expired. During that time another member may
        own the partitions.
        """
        return self._call_may_revoke and _MEMBERSHIP in self._routes.background_calls

    def _keep_group(self) -> None:
        """Begins a heartbeat or a join, and an automatic commit, if they are due. Drops all positions if the membership was lost."""
        membership = self.membership
        if self._may_be_revoked:
            return
        if membership is not None:
            self._forget_lost(membership)
        joins = membership is not None and membership.must_join()
        is_committing = _COMMIT in self._routes.background_calls
        if self.is_auto_commit and not is_committing and (time.monotonic() >= self._commit_at or (joins and not self._has_committed)):
            self._has_committed = joins
            if changed := self._uncommitted(self.positions):
                self._routes.background_calls.begin(_COMMIT, partial(self._send_commit, changed), partial(self._take_commit, changed))
        if membership is None or not membership.is_due() or _MEMBERSHIP in self._routes.background_calls:
            return
        if joins and _COMMIT in self._routes.background_calls:
            return
        self._call_may_revoke = joins or membership.may_have_expired()
        self._has_committed = False
        self._routes.background_calls.begin(_MEMBERSHIP, membership.keep_alive, self._take_assignment)

    def _take_assignment(self, assignment: tuple[TopicPartition, ...] | None) -> None:
        if self.membership is not None:
            self._forget_lost(self.membership)
        if assignment is not None:
            self._take_over(assignment)

    def _end_membership(self) -> None:
        """Ends the membership. A heartbeat or join in another thread fails, and its error is ignored."""
        is_under_way = _MEMBERSHIP in self._routes.background_calls
        self._routes.background_calls.abandon(_MEMBERSHIP)
        if self.membership is not None:
            self.membership.leave(interrupts=is_under_way)

    def _forget_lost(self, membership: GroupMembership) -> None:
        if membership.is_new:
            membership.is_new = False
            self._routes.background_calls.abandon(_POSITIONS)
            self.positions, self._without_position, self._committed = {}, {}, {}

    def _take_over(self, assignment: Sequence[TopicPartition]) -> None:
        """Sets the assignment. Kept partitions keep their positions; new partitions begin at the committed offsets."""
        self._routes.background_calls.abandon(_POSITIONS)
        new = [partition for partition in assignment if partition not in self.positions]
        self._without_position = {partition: self._without_position.get(partition, True) for partition in new}
        self.positions = {partition: self.positions[partition] for partition in assignment if partition in self.positions}
        self._committed = {partition: offset for partition, offset in self._committed.items() if partition in self.positions}
        self._order = deque(sorted(assignment))
        self._commit_at = time.monotonic() + AUTO_COMMIT_INTERVAL_S

    @owned
    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, except_for: Sequence[Fetched] = ()) -> None:
        """Commits `offsets`, by default all positions, for the group; without a group it does nothing. `except_for` are batches that `poll`
        has returned and the caller has not processed yet.

        If the coordinator refuses the offsets because of a rebalance, or because the group has removed this member, no error is raised. The
        next `poll` joins again, and a member of the group reads the records after the last committed offset again.
        """
        wanted = dict(self.positions if offsets is None else offsets)
        for fetched in except_for:
            wanted[fetched.partition] = min(fetched.start, wanted.get(fetched.partition, fetched.start))
        self._routes.background_calls.finish(_COMMIT)  # an automatic commit of earlier positions
        if changed := self._uncommitted(wanted):
            self._take_commit(changed, self._send_commit(changed))

    def _uncommitted(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._commit_at = time.monotonic() + AUTO_COMMIT_INTERVAL_S
        return {partition: offset for partition, offset in wanted.items() if self._committed.get(partition) != offset}

    def _send_commit(self, changed: Mapping[TopicPartition, int]) -> dict[TopicPartition, KafkaError | None]:
        if self.group_id is None:
            return {}
        generation, member_id = (-1, "") if self.membership is None else (self.membership.generation, self.membership.member_id)
        return commit_offsets(self.cluster, self.group_id, changed, generation=generation, member_id=member_id)

    def _take_commit(self, changed: Mapping[TopicPartition, int], results: Mapping[TopicPartition, KafkaError | None]) -> None:
        self._committed.update((partition, changed[partition]) for partition, failed in results.items() if failed is None)
        for failed in filter(None, results.values()):
            if failed.code not in _OLD_MEMBER or self.membership is None:
                raise failed
            if not self._may_be_revoked:
                # Other members continue at the last committed offset. They read the records after it again; no record is lost.
                self.membership.join_again(failed.code)

    @checked
    def close(self, *, may_commit: bool = True) -> None:
        """Commits if commits are automatic and `may_commit`, and ends the membership. In a forked child it only closes the inherited
        sockets.
        """
        if self.owner.is_in_child:
            self._drop_connections()
        else:
            self._leave(may_commit)

    @owned
    def _leave(self, may_commit: bool) -> None:
        with ExitStack() as steps:
            steps.callback(self._drop_connections)
            steps.callback(self._end_membership)
            if self.is_auto_commit and self.positions and may_commit:
                self.commit()

    def _drop_connections(self) -> None:
        self._routes.close()
        if self.membership is not None:
            self.membership.coordinator.close()

    # Where things are

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, also those whose position is being looked up."""
        return [*self.positions, *self._without_position]
