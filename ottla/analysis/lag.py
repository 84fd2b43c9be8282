"""The lag of a group: how many records, and how many seconds, its committed offsets are behind."""

from __future__ import annotations

import time
from typing import NamedTuple

from ottla.analysis.moments import now_ms
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import group_admin
from ottla.client.core.admin import EARLIEST, LATEST, OffsetAt, list_offsets


class PartitionLag(NamedTuple):
    """The lag of a partition: to the high watermark, to the last stable offset, and in seconds."""

    group: str
    topic: str
    partition: int
    current_offset: int
    last_stable_offset: int
    log_end_offset: int
    lag: int
    stable_lag: int
    lag_seconds: float | None


def group_lag(cluster: Cluster, group_id: str) -> list[PartitionLag]:
    """Returns the lag of each committed partition that has a leader: in records to the high watermark and to the last stable offset.
    `lag_seconds` is the age of the next record: 0 without lag, None if the record could not be read in time."""
    committed = group_admin.committed_offsets(cluster, group_id)
    if not committed:
        return []
    ends = list_offsets(cluster, dict.fromkeys(committed, LATEST))
    stables = list_offsets(cluster, dict.fromkeys(committed, LATEST), isolation_level=READ_COMMITTED)
    starts = list_offsets(cluster, dict.fromkeys(committed, EARLIEST))
    behind: dict[TopicPartition, int] = {}
    rows: dict[TopicPartition, PartitionLag] = {}
    for partition, found in committed.items():
        end, stable, start = ends[partition], stables[partition], starts[partition]
        if not (isinstance(end, OffsetAt) and isinstance(stable, OffsetAt) and isinstance(start, OffsetAt)):
            continue  # a deleted partition, or without a leader, has no end offset
        if found.offset < end.offset:
            behind[partition] = max(found.offset, start.offset)
        lags = (max(0, end.offset - found.offset), max(0, stable.offset - found.offset))
        rows[partition] = PartitionLag(group_id, *partition, found.offset, stable.offset, end.offset, *lags, 0.0)
    ages = ages_s(cluster, behind)
    for partition in behind:
        rows[partition] = rows[partition]._replace(lag_seconds=ages.get(partition))
    return list(rows.values())


def ages_s(cluster: Cluster, positions: dict[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Returns the age in seconds of the first record at or after each position; 0 if only transaction markers follow. Omits partitions that
    cannot be read within 5 s, or within the timeout of the cluster if that is shorter."""
    from ottla.client.blocking.consumer import Consumer

    ages: dict[TopicPartition, float] = {}
    if not positions:
        return ages
    deadline = time.monotonic() + min(5.0, cluster.timeout_s)
    with Consumer(cluster, auto_offset_reset="earliest", partition_bytes_max=16 * 1024, max_wait_ms=100) as consumer:
        consumer.assign(positions)
        while len(ages) < len(positions) and time.monotonic() < deadline:
            for fetched in consumer.poll(0.5):
                record = next(fetched.records(), None)
                if record is not None:
                    ages.setdefault(fetched.partition, max(0.0, (now_ms() - record.timestamp) / 1000))
                elif fetched.next_offset >= fetched.high_watermark:
                    ages.setdefault(fetched.partition, 0.0)
    return ages
