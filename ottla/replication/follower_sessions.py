"""The fetch sessions of followers with this leader, one per connection. The cost of a request depends only on the partitions that changed
and on the partitions whose ISR lacks the follower.

A session ends with its connection, or when its follower closes the session or opens another session. Clients cannot evict a follower's
session. It watches each of its partitions. A partition that changes is added to the session's dirty list, once, and wakes the waiting
request. A request names the partitions whose log changed at the follower. The leader reads only the dirty partitions. A named partition
becomes dirty at once if it is new in the session, or has an error, records, a new high watermark or a new log start for the follower.

An entry with `partition_max_bytes` 0 for a partition of the session only reports that more of the follower's log is durable.

A partition that returned records or an error is *answered* and not read again until the follower names it. The follower must do so, because
its log has changed or it has to retry. A request sent behind a waiting one therefore does not get the same records twice.

A follower at the end of a log need not name the partition. Until records are appended, each request of the session shows that the follower
has caught up. When records are appended, its caught-up time becomes the time of the session's last request. If the follower is not in the
ISR of a partition, each request checks whether it may join, also if the request does not name the partition.

Reading, answers and waiting are in `handlers/records/follower_fetch.py`, the rules of progress in `progress.py` and `leader.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from ottla.base.errors import ApiError, ErrorCode
from ottla.replication.partition import Partition
from ottla.replication.progress import FollowerFetch
from ottla.replication.throttle import UNLIMITED, ReplicationThrottle
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFFFFFF
UNKNOWN_HIGH_WATERMARK = 0x7FFFFFFFFFFFFFFF

NOTHING, WATERMARK, MORE = 0, 1, 2
"""The news of a partition for a follower: nothing, only a new high watermark, or more (records, an error, a new log start)."""

_new_tuple = tuple.__new__

Key = tuple[str | bytes, int]
"""Topic id (below version 13 of Fetch the topic name), and partition."""


class SessionRequests(Protocol):
    """The requests of a session (`handlers/records/follower_fetch.py`). At most one of them waits."""

    def answer_or_wait(self, request: Any, body: FetchRequest) -> Any:
        """Executes the next request. Returns its answer, or a `Pending`."""

    def changed(self, news: int) -> None:
        """Called when a dirty partition of the session has changed. `news` is its news, `WATERMARK` or `MORE`."""

    def answer_now(self) -> None:
        """Answers the waiting request immediately."""

    def close(self) -> None:
        """Ends all waits, because the session has ended."""


class FollowedPartition:
    """One partition in a follower's session."""

    __slots__ = (
        "asked", "diverging_epoch", "error", "is_answered", "key", "known_log_start", "known_watermark", "news", "partition", "session",
    )  # fmt: skip

    def __init__(self, session: FollowerSession, key: Key, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.asked = asked
        self.partition: Partition | None = None
        self.error = ErrorCode.NONE
        self.diverging_epoch: tuple[int, int] | None = None
        self.is_answered = False
        self.news = NOTHING
        """The news that the follower has not been sent yet. A partition with news is in the dirty list of its session."""
        # The leader's bounds as the follower knows them.
        self.known_watermark = -1
        self.known_log_start = -1

    def watch(self, partition: Partition | None) -> None:
        """Watches this replica instead of the previous one."""
        if self.partition is not None:
            self.partition.notifier.remove_watcher(self.mark)
        if partition is not None:
            partition.notifier.add_watcher(self.mark)
        self.partition = partition

    def find_news(self) -> int:
        """Returns what a read would return for the follower: `NOTHING`, `WATERMARK` or `MORE`."""
        partition, asked = self.partition, self.asked
        if partition is None:
            return MORE
        log, leader = partition.log, partition.leader
        if asked.fetch_offset != log.log_end_offset or log.log_start_offset > self.known_log_start or self.error:
            return MORE
        if leader is None or 0 <= asked.current_leader_epoch != leader.epoch or self.diverging_epoch is not None:
            return MORE
        return WATERMARK if partition.state.high_watermark > self.known_watermark else NOTHING

    def is_behind(self, partition: Partition) -> bool:
        """Whether the log has records beyond the fetch offset."""
        return self.asked.fetch_offset < partition.log.log_end_offset

    def mark(self) -> None:
        """Marks the partition dirty if it has news, and notifies the waiting request; does nothing for an answered partition."""
        if self.is_answered:
            return
        session, news = self.session, self.find_news()
        if self.news == NOTHING:
            self._note_caught_up()
            if news == NOTHING:
                session.note_membership(self)
                return
            session.dirty.append(self)
        self.news = news or self.news
        if session.requests is not None:
            session.requests.changed(self.news)

    def _note_caught_up(self) -> None:
        """Records that the follower had caught up at the session's last request: the partition was not dirty then."""
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
        """Partitions that do not have the follower in their ISR."""
        self.requests: SessionRequests | None = None
        """None before the first request."""

    def close(self) -> None:
        for entry in self.followed.values():
            entry.watch(None)
        self.followed.clear()
        self.dirty.clear()
        self.outside.clear()
        requests, self.requests = self.requests, None
        if requests is not None:
            requests.close()

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            entry = self.followed.pop(key, None)
            if entry is not None:
                entry.watch(None)
                entry.is_answered = True
                self.outside.pop(entry, None)

    def name(self, key: Key, asked: FetchPartition, partition: Partition | None, absence: ErrorCode) -> None:
        """Processes an entry of a request: records the follower's position and schedules a read. `absence` is the error if the partition is
        None."""
        entry = self.followed.get(key)
        fetch: FollowerFetch = _new_tuple(
            FollowerFetch,
            (self.replica_id, self.broker_epoch, asked.fetch_offset, asked.log_start_offset, self.last_fetch_ms, asked.durable_end),
        )
        if entry is not None and asked.partition_max_bytes == 0 and partition is not None and partition is entry.partition:
            with suppress(ApiError):  # The next read of the partition returns the error.
                partition.note_follower(
                    fetch, current_leader_epoch=asked.current_leader_epoch, last_fetched_epoch=asked.last_fetched_epoch
                )
            return
        is_new = entry is None
        if entry is None:
            entry = self.followed[key] = FollowedPartition(self, key, asked)
        entry.asked = asked
        if partition is not entry.partition:
            entry.watch(partition)
        entry.diverging_epoch = None
        entry.error = absence
        entry.is_answered = True  # `mark` ignores what this progress changes: the news are found below.
        if partition is not None:
            hw, start = asked.high_watermark, asked.log_start_offset
            entry.known_watermark = partition.high_watermark if hw == UNKNOWN_HIGH_WATERMARK else hw
            entry.known_log_start = partition.log.log_start_offset if start < 0 else start
            try:
                entry.diverging_epoch = partition.note_follower(
                    fetch, current_leader_epoch=asked.current_leader_epoch, last_fetched_epoch=asked.last_fetched_epoch
                )
            except ApiError as error:
                entry.error = error.code
            else:
                if asked.came_damaged:
                    partition.doubt(asked.fetch_offset)
        entry.is_answered = False
        if self.outside or partition is None or self.replica_id not in partition.state.isr_state.members:
            self.note_membership(entry)
        news = MORE if is_new else entry.find_news()
        if news:
            if not entry.news:
                self.dirty.append(entry)
            entry.news = news

    def judge_outsiders(self) -> None:
        """Proposes the follower for each ISR that it may join now, among the partitions in `outside`."""
        for entry in list(self.outside):
            leader = entry.partition.leader if entry.partition is not None else None
            progress = leader.followers.get(self.replica_id) if leader is not None else None
            if leader is not None and progress is not None and not entry.error:
                leader.maybe_expand_isr(progress, self.last_fetch_ms)

    def note_membership(self, entry: FollowedPartition) -> None:
        """Updates `outside` for a partition."""
        if entry.partition is None or self.replica_id in entry.partition.state.isr_state.members:
            if self.outside:
                self.outside.pop(entry, None)
        else:
            self.outside[entry] = None


class FollowerSessions:
    """The sessions of all followers, by connection."""

    def __init__(self, throttled_rate: Callable[[], int] = lambda: UNLIMITED) -> None:
        self.throttle = ReplicationThrottle(throttled_rate)
        self._sessions: dict[object, FollowerSession] = {}
        self._count = 0
        self.bytes_out = 0
        """Bytes of records sent to followers."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, connection: object, replica_id: int, broker_epoch: int) -> FollowerSession:
        """Opens a session and closes the follower's earlier ones. A late request on an earlier connection would move its progress
        backwards."""
        for earlier in [key for key, session in self._sessions.items() if key is connection or session.replica_id == replica_id]:
            self.close(earlier)
        self._count = 1 if self._count == EPOCH_MAX else self._count + 1
        session = self._sessions[connection] = FollowerSession(self._count, replica_id, broker_epoch)
        return session

    def next(self, connection: object, session_id: int, epoch: int, broker_epoch: int) -> FollowerSession | ErrorCode:
        """Returns the session of an incremental request, or an error. A follower with a new broker epoch must open a new session."""
        session = self._sessions.get(connection)
        if session is None or session.session_id != session_id or session.broker_epoch != broker_epoch:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != (1 if session.epoch == EPOCH_MAX else session.epoch + 1):
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = epoch
        return session

    def close(self, connection: object) -> None:
        """Ends the session of a connection, and answers its waiting request."""
        session = self._sessions.get(connection)
        if session is not None and session.requests is not None:
            session.requests.answer_now()
        self.drop(connection)

    def drop(self, connection: object) -> None:
        """Ends the session of a closed connection."""
        session = self._sessions.pop(connection, None)
        if session is not None:
            session.close()
