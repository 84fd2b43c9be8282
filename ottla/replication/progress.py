"""The progress of each follower, as its leader knows it from the follower's fetches.

A fetch at offset N says that the follower has everything below N, in the leader epoch of the fetch. `Partition.note_follower` first refuses
fetches with another leader epoch (I12, I18). Lag is measured in time: the leader keeps the latest time at which its log had only records
that the follower has now. A follower that is always one fetch behind a busy leader is therefore in sync, and a follower without progress is
not. A waiting fetch is recorded once, although it is tried again and again.

Pure state; times are the loop's monotonic milliseconds. `isr.py` has the rules of the ISR.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class FollowerFetch(NamedTuple):
    """A follower's position in one Fetch, for one partition. `now_ms` is its arrival. The follower's log is synced below `durable_end`,
    which is -1 if its broker does not wait for the disk."""

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
        """The end that the high watermark waits for: the durable end if the follower's broker waits for the disk, else the log end."""
        self.log_start_offset = UNKNOWN_OFFSET
        # A member of the ISR has the full lag time to fetch from a new leader.
        self.last_caught_up_ms = now_ms if is_in_sync else -(1 << 62)
        self.last_fetch_leader_end = 0
        self.last_fetch_ms = -(1 << 62)
        self.refused_until_ms = -(1 << 62)
        """Until this time the follower is not proposed for the ISR again, because the controller has refused it."""

    def on_fetch(self, fetch: FollowerFetch, leader_end_offset: int) -> None:
        """Processes a fetch that arrived when the leader's log ended at `leader_end_offset`."""
        _, broker_epoch, offset, self.log_start_offset, now_ms, durable_end = fetch
        self.durable_end = offset if durable_end < 0 else min(durable_end, offset)
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.refused_until_ms = now_ms
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            # The follower now has every record that existed at its last fetch, so it had caught up at that time.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.last_fetch_leader_end = leader_end_offset
        self.last_fetch_ms = now_ms
