"""How far has each follower come? What a leader remembers of its remote replicas.

A follower's fetch at offset N says that it has everything below N, in the leader epoch that the fetch names; fetches of another epoch
never get here (`Partition.read` fences them, I12, I18). "Caught up" is judged by time: a follower has caught up as of the moment at
which it had all that the leader had then. So a follower that is always one fetch behind a busy leader still counts, and one that stands
still does not.

Pure state; times are the loop's monotonic milliseconds. Left out: who may join or must leave (`isr.py`), the high watermark.
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1


class RemoteReplica:
    """One follower's progress within the current leader epoch."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, *, now_ms: int, is_in_sync: bool) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        # A member of the ISR gets the full lag time to show itself to a new leader.
        self.last_caught_up_ms = now_ms if is_in_sync else -(1 << 62)
        self.last_fetch_leader_end = 0
        self.last_fetch_ms = -(1 << 62)

    def on_fetch(self, *, offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int) -> None:
        """A fetch at `offset` arrived while the leader's log ended at `leader_end_offset`."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            # It has all that there was at its last fetch, so it had caught up as of then.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.last_fetch_leader_end = leader_end_offset
        self.last_fetch_ms = now_ms
