"""The fetcher's state of one followed partition in one term, and its entry in a Fetch."""

from __future__ import annotations

from ottla.base.types import NO_OFFSET
from ottla.replication.follower import FetchAt, Follower
from ottla.replication.follower_log import FollowerLog
from ottla.replication.partition import Partition
from ottla.replication.throttle import is_throttled
from ottla.wire.messages.fetch import FetchPartition
from ottla.wire.schema import maker

make_partition = maker(FetchPartition)

Key = tuple[bytes, int]
"""Topic id and partition."""


class Followed:
    """One partition that follows the leader in one term."""

    __slots__ = (
        "asked_offset", "bounds_start", "damaged_at", "failures", "follower", "follower_log", "is_paused", "key", "named_in_request",
        "partition",
    )  # fmt: skip

    def __init__(self, key: Key, partition: Partition, follower_log: FollowerLog) -> None:
        self.key = key
        self.partition = partition
        self.follower_log = follower_log
        self.follower = Follower(leader_id=partition.leader_id, leader_epoch=follower_log.epoch)
        self.named_in_request: int | None = None
        """Number of the first request that named the partition in this term."""
        self.asked_offset = -1
        self.bounds_start = -1
        self.damaged_at = -1
        """Log end when the leader sent damaged bytes; the next fetch from there reports that to the leader."""
        self.failures = 0
        self.is_paused = False

    @property
    def is_throttled(self) -> bool:
        """Whether the topic lists this replica as throttled. The throttle delays the replica only while it lags."""
        replicas = self.partition.log.config.follower_throttled
        return bool(replicas) and is_throttled(replicas, self.key[1], self.partition.broker_id)


def position(followed: Followed, bytes_max: int) -> FetchPartition:
    """Returns the partition's entry in a Fetch: log end, log start, high watermark and durable end."""
    state, own = followed.partition.state, followed.partition.log
    asked = followed.follower.next_request(own.epochs, own.log_end_offset)
    assert isinstance(asked, FetchAt), f"{state.topic_partition} is not ready to fetch"
    return make_partition(
        partition=followed.key[1],
        current_leader_epoch=asked.current_leader_epoch,
        fetch_offset=asked.offset,
        last_fetched_epoch=asked.last_fetched_epoch,
        log_start_offset=state.noted_log_start,
        partition_max_bytes=bytes_max,
        high_watermark=state.high_watermark,
        durable_end=state.durable_end if state.is_flush_on_ack else NO_OFFSET,
        came_damaged=bytes_max > 0 and followed.damaged_at == asked.offset,
    )
