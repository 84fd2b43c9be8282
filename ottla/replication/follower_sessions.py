"""The fetch sessions of followers with this leader: one a connection, at a cost that depends on what has moved.

A session lives as long as its connection, so no client can evict it. Each of its partitions is watched as long as it is in the session:
what moves puts it on the session's list of dirty ones, once, and wakes the request that waits. A request names the partitions whose logs
have changed at the follower, and only those and the dirty ones are looked at; the others cost nothing, however many there are.

A mention with `partition_max_bytes` 0 reports a position and asks for nothing: more of the follower's log is durable.

A partition that has given records or an error is *answered*, and left alone until the follower names it again: it must, because its log
has changed or it has to decide when to try again. So a request that is sent behind one that waits does not get the same records twice.

A follower that is at the end of a log need not name it. That it has caught up is noted when the log moves: up to the session's last request
it had everything. A follower outside of the in-sync set is judged at each request, named or not.

Left out: reading, answers and waiting (`requests/follower_fetches.py`), the rules of progress (`progress.py`, `leader.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from ottla.base.errors import ApiError, ErrorCode
from ottla.replication.partition import Partition
from ottla.replication.progress import FollowerFetch
from ottla.replication.throttle import UNLIMITED, Throttle
from ottla.wire.messages.fetch import FetchPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFFFFFF
UNKNOWN_HIGH_WATERMARK = 0x7FFFFFFFFFFFFFFF

Key = tuple[str | bytes, int]
"""Topic id, or its name below version 13 of Fetch, and partition."""


class FollowedPartition:
    """One partition in a follower's session."""

    __slots__ = (
        "asked", "diverging_epoch", "error", "is_answered", "is_dirty", "key", "known_log_start", "known_watermark", "partition", "session",
    )  # fmt: skip

    def __init__(self, session: FollowerSession, key: Key, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.asked = asked
        self.partition: Partition | None = None
        self.error = ErrorCode.NONE
        self.diverging_epoch: tuple[int, int] | None = None
        self.is_answered = False
        self.is_dirty = False
        # What the follower knows of the leader's bounds.
        self.known_watermark = -1
        self.known_log_start = -1

    def watch(self, partition: Partition | None) -> None:
        """Watches this replica from now on, in place of the one before."""
        if partition is not self.partition:
            if self.partition is not None:
                self.partition.notifier.remove_watcher(self.mark)
            if partition is not None:
                partition.notifier.add_watcher(self.mark)
            self.partition = partition

    def mark(self) -> None:
        """The partition has moved."""
        if self.is_answered:
            return
        session = self.session
        if not self.is_dirty:
            self._note_caught_up()
            self.is_dirty = True
            session.dirty.append(self)
        if session.wake is not None:
            session.wake()

    def _note_caught_up(self) -> None:
        """It was not dirty, so the session's last request found nothing that the follower had not."""
        leader = self.partition.leader if self.partition is not None else None
        progress = leader.followers.get(self.session.replica_id) if leader is not None else None
        if progress is not None and progress.last_caught_up_ms < self.session.last_fetch_ms:
            progress.last_caught_up_ms = self.session.last_fetch_ms


class FollowerSession:
    """The partitions that one follower fetches over one connection."""

    def __init__(self, session_id: int, replica_id: int, broker_epoch: int) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.epoch = INITIAL_EPOCH
        self.last_fetch_ms = -(1 << 62)
        self.followed: dict[Key, FollowedPartition] = {}
        self.dirty: list[FollowedPartition] = []
        self.outside: dict[FollowedPartition, None] = {}
        """Those in whose in-sync set the follower is not."""
        self.wake: Callable[[], None] | None = None
        """Called when a partition becomes dirty: a request waits."""
        self.end_wait: Callable[[], None] | None = None
        """Answers the request that waits with what there is."""

    def close(self) -> None:
        for entry in self.followed.values():
            entry.watch(None)
        self.followed.clear()
        self.dirty.clear()
        self.outside.clear()
        self.wake = None

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            entry = self.followed.pop(key, None)
            if entry is not None:
                entry.watch(None)
                entry.is_answered = True
                self.outside.pop(entry, None)

    def name(self, key: Key, asked: FetchPartition, partition: Partition | None, absence: ErrorCode) -> None:
        """The follower has named a partition: its position is noted, and it will be looked at. `absence`: the error if there is none."""
        entry = self.followed.get(key)
        if entry is not None and asked.partition_max_bytes == 0 and partition is not None and partition is entry.partition:
            self._take_report(asked, partition)
            return
        if entry is None:
            entry = self.followed[key] = FollowedPartition(self, key, asked)
        entry.asked = asked
        entry.watch(partition)
        entry.is_answered = False
        entry.diverging_epoch = None
        entry.error = absence if partition is None else self._note(entry, partition)
        if not entry.is_dirty:
            entry.is_dirty = True
            self.dirty.append(entry)

    def _note(self, entry: FollowedPartition, partition: Partition) -> ErrorCode:
        asked = entry.asked
        hw, start = asked.high_watermark, asked.log_start_offset
        entry.known_watermark = partition.high_watermark if hw == UNKNOWN_HIGH_WATERMARK else hw
        entry.known_log_start = partition.log.log_start_offset if start < 0 else start
        try:
            entry.diverging_epoch = partition.note_follower(
                self._position(asked), current_leader_epoch=asked.current_leader_epoch, last_fetched_epoch=asked.last_fetched_epoch
            )
        except ApiError as error:
            return error.code
        if asked.came_damaged:
            partition.doubt(asked.fetch_offset)
        return ErrorCode.NONE

    def _take_report(self, asked: FetchPartition, partition: Partition) -> None:
        """A refusal is answered where the partition is fetched."""
        with suppress(ApiError):
            partition.note_follower(
                self._position(asked), current_leader_epoch=asked.current_leader_epoch, last_fetched_epoch=asked.last_fetched_epoch
            )

    def _position(self, asked: FetchPartition) -> FollowerFetch:
        return FollowerFetch(
            self.replica_id, self.broker_epoch, asked.fetch_offset, asked.log_start_offset, self.last_fetch_ms, asked.durable_end
        )

    def judge_outsiders(self) -> None:
        """Proposes those that have come far enough meanwhile, and could not be proposed when they were named."""
        for entry in list(self.outside):
            leader = entry.partition.leader if entry.partition is not None else None
            progress = leader.followers.get(self.replica_id) if leader is not None else None
            if leader is not None and progress is not None and not entry.error:
                leader.maybe_expand_isr(progress, self.last_fetch_ms)

    def note_membership(self, entry: FollowedPartition) -> None:
        """Keeps `outside`."""
        if entry.partition is None or self.replica_id in entry.partition.isr:
            self.outside.pop(entry, None)
        else:
            self.outside[entry] = None


class FollowerSessions:
    """The sessions of all followers with this broker, by connection."""

    def __init__(self, throttled_rate: Callable[[], int] = lambda: UNLIMITED) -> None:
        self.throttle = Throttle(throttled_rate)
        self._sessions: dict[object, FollowerSession] = {}
        self._count = 0
        self.bytes_out = 0
        """Bytes of records that followers were sent."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, connection: object, replica_id: int, broker_epoch: int) -> FollowerSession:
        """A new session in place of all that the follower had: what still arrives over an earlier connection is out of date, and would have
        the leader know less than it knows."""
        for earlier in [key for key, session in self._sessions.items() if key is connection or session.replica_id == replica_id]:
            self.close(earlier)
        self._count = 1 if self._count == EPOCH_MAX else self._count + 1
        session = self._sessions[connection] = FollowerSession(self._count, replica_id, broker_epoch)
        return session

    def next(self, connection: object, session_id: int, epoch: int, broker_epoch: int) -> FollowerSession | ErrorCode:
        """The session that an incremental request belongs to, or why there is none. A follower that was registered anew begins again."""
        session = self._sessions.get(connection)
        if session is None or session.session_id != session_id or session.broker_epoch != broker_epoch:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != (1 if session.epoch == EPOCH_MAX else session.epoch + 1):
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = epoch
        return session

    def close(self, connection: object) -> None:
        """Ends the session of a connection, and answers the request that waits there."""
        session = self._sessions.get(connection)
        if session is not None and session.end_wait is not None:
            session.end_wait()
        self.drop(connection)

    def drop(self, connection: object) -> None:
        """Ends the session of a connection that is closed."""
        session = self._sessions.pop(connection, None)
        if session is not None:
            session.close()
