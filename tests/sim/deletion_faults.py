"""Faults: functions that break a rule of DeleteRecords on purpose, one at a time. The tests show that the verdicts notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from ottla.replication.follower_log import FollowerLog
from ottla.replication.leader import Leader
from ottla.replication.state import PartitionState
from tests.sim.deletion_world import DeletionWorld
from tests.sim.seed_search import catch_seed


def answered_before_followers() -> Any:
    """A deletion is answered when only the leader has executed it."""
    return mock.patch.object(Leader, "low_watermark", lambda leader, _live=None: leader.log.log_start_offset)


def answered_before_noted() -> Any:
    """A deletion is answered when the replicas have executed it in memory, and a restart undoes it."""
    return mock.patch.object(PartitionState, "noted_log_start", property(lambda state: state.log.log_start_offset))


def followers_keep_their_start() -> Any:
    """A follower reports the leader's start offset, but has removed nothing."""
    append = FollowerLog.append

    def append_only(log: FollowerLog, batches: memoryview, *, high_watermark: int, leader_log_start: int) -> None:
        append(log, batches, high_watermark=high_watermark, leader_log_start=0)

    return mock.patch.multiple(FollowerLog, append=append_only)


def deleted_to_the_watermark() -> Any:
    """The leader deletes all committed records, whatever the request names."""
    delete = Leader.delete_records
    return mock.patch.object(Leader, "delete_records", lambda leader, _offset: delete(leader, -1))


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (answered_before_followers, answered_before_noted, followers_keep_their_start, deleted_to_the_watermark)
}
VERDICTS = {
    "answered_before_followers": r"leads and begins at \d+, up to \d+ records are deleted \(I7\)",
    "answered_before_noted": r"leads and begins at \d+, up to \d+ records are deleted \(I7\)",
    "followers_keep_their_start": r"the replicas begin at .* \(I45\)",
    "deleted_to_the_watermark": r"begins at \d+, deletions were asked for up to \d+ \(I7\)",
}
"""What is said of each fault. Another verdict under it may be true as well, and shows less: it does not count as found."""


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault's verdict, and the message; (0, "") if no seed fails."""
    return catch_seed(FAULTS[name](), lambda seed: DeletionWorld(seed).run(), seeds, first, VERDICTS[name])
