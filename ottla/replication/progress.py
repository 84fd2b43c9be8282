"""The progress of each follower, as its leader knows it from the follower's fetches.

A follower's fetch at offset N says that it has everything below N, in the leader epoch that the fetch names; fetches of another epoch
never get here (`Partition.read_as_follower` fences them, I12, I18). "Caught up" is judged by time: a follower has caught up as of the
moment at which it had all that the leader had then. So a follower that is always one fetch behind a busy leader still counts, and one
that stands still does not. A fetch that waits for records is one fetch, however often it is tried again.

Pure state; times are the loop's monotonic milliseconds. Left out: the rules of the ISR (`isr.py`), the high watermark.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class FollowerFetch(NamedTuple):
    """The position of a follower in one Fetch, for one partition; `now_ms` is when it arrived. Below `durable_end` its log is synced, -1 if
    it does not wait for its disk."""

    replica_id: int
    broker_epoch: int
    offset: int
    log_start_offset: int
    now_ms: int
    durable_end: int = UNKNOWN_OFFSET


class FollowerProgress:
    """One follower's progress within the current leader epoch."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "durable_end",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "refused_until_ms",
    )

    def __init__(self, broker_id: int, *, now_ms: int, is_in_sync: bool) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_EPOCH
        self.log_end_offset = UNKNOWN_OFFSET
        self.durable_end = UNKNOWN_OFFSET
        """What counts for the high watermark: where its log is synced if its broker waits for that, else where it ends."""
        self.log_start_offset = UNKNOWN_OFFSET
        # A member of the ISR has the full lag time to fetch from a new leader.
        self.last_caught_up_ms = now_ms if is_in_sync else -(1 << 62)
        self.last_fetch_leader_end = 0
        self.last_fetch_ms = -(1 << 62)
        self.refused_until_ms = -(1 << 62)
        """Until then it is not proposed for the ISR again: the controller has refused it."""

    def on_fetch(self, fetch: FollowerFetch, leader_end_offset: int) -> None:
        """A fetch arrived while the leader's log ended at `leader_end_offset`."""
        _, broker_epoch, offset, self.log_start_offset, now_ms, durable_end = fetch
        self.durable_end = offset if durable_end < 0 else min(durable_end, offset)
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.refused_until_ms = now_ms
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            # It has all that there was at its last fetch, so it had caught up as of then.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.last_fetch_leader_end = leader_end_offset
        self.last_fetch_ms = now_ms
