"""Selects the segments at the head of a log that retention removes: Kafka's three reasons, whole segments, oldest first.

Below the log start offset (DeleteRecords moved it), for every cleanup policy; beyond `retention.bytes`, counting what would remain; older
than `retention.ms` by the largest timestamp in the segment, both only where the policy contains "delete". A segment without any timestamp
counts from when this broker created or opened it.
Invariants: nothing at or above the high watermark is ever named (I7), and the answer is always a run from the oldest segment on.
Left out: removing files (`Log.delete_expired`), compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.log_config import LogConfig
from ottla.storage.segment import Segment

CLOCK_SKEW_MS = 60_000
"""Timestamps up to this far ahead are no reason for a warning: clocks of clients differ."""


def count_expired(
    segments: Sequence[Segment], config: LogConfig, *, now_ms: int, high_watermark: int, log_start_offset: int, log_end_offset: int
) -> int:
    """How many segments from the oldest on are expired. Possibly all; the caller then rolls first. An empty active one never counts."""
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        end = segment.end_offset if segment.is_sealed else log_end_offset
        if end > high_watermark or (not segment.is_sealed and segment.size == 0):
            break
        is_below_start = end <= log_start_offset and segment.is_sealed
        is_too_much = config.is_deleted and config.retention_bytes >= 0 and excess >= segment.size
        if not (is_below_start or is_too_much or (config.is_deleted and _is_too_old(segment, config.retention_ms, now_ms))):
            break
        excess -= segment.size
        count += 1
    return count


class FutureSegment(NamedTuple):
    """A segment that `retention.ms` keeps because its largest timestamp is in the future."""

    base_offset: int
    timestamp_ms: int


def kept_by_the_future(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> FutureSegment | None:
    """The oldest segment, if its largest timestamp is in the future: it and all segments behind it stay until that time and
    `retention.ms` have passed (KAFKA-18929)."""
    if not config.is_deleted or config.retention_ms < 0 or not segments[0].size:
        return None
    timestamp = segments[0].largest_timestamp()
    return FutureSegment(segments[0].base_offset, timestamp) if timestamp - now_ms > CLOCK_SKEW_MS else None


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    timestamp = segment.largest_timestamp()
    return now_ms - (timestamp if timestamp >= 0 else segment.created_ms) > retention_ms
