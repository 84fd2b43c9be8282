"""Selects the segments that retention removes from the head of a log: whole segments, the oldest first, for one of Kafka's three reasons.

A segment below the log start offset (after DeleteRecords) is removed under every cleanup policy, unless it is active. If the policy
contains "delete", a segment is also removed if the rest has at least `retention.bytes` without it, or if its largest timestamp is older
than `retention.ms`. The age of a segment without any timestamp begins when this broker creates or opens it. Invariant: no segment with a
record at or above the high watermark is selected (I7). `Log.delete_expired` removes the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.log_config import LogConfig
from ottla.storage.segment import Segment

CLOCK_SKEW_MS = 60_000
"""Timestamps up to this far in the future cause no warning, because clients' clocks differ."""


def count_expired(
    segments: Sequence[Segment], config: LogConfig, *, now_ms: int, high_watermark: int, log_start_offset: int, log_end_offset: int
) -> int:
    """Returns the number of expired segments, from the oldest on. If all are expired, the caller first rolls the log. An empty active
    segment is never expired.
    """
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
    """Returns the oldest segment if its largest timestamp is more than `CLOCK_SKEW_MS` in the future. `retention.ms` removes neither this
    segment nor later ones until it is older than `retention.ms` (KAFKA-18929).
    """
    if not config.is_deleted or config.retention_ms < 0 or not segments[0].size:
        return None
    timestamp = segments[0].largest_timestamp()
    return FutureSegment(segments[0].base_offset, timestamp) if timestamp - now_ms > CLOCK_SKEW_MS else None


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    timestamp = segment.largest_timestamp()
    return now_ms - (timestamp if timestamp >= 0 else segment.created_ms) > retention_ms
