"""Finds the first record not older than a timestamp, and the newest record of all.

The first segment whose largest timestamp reaches the wanted one is used; its time index gives an offset before which everything is older,
its offset index a position; from there batch headers are walked, and only the records of the one batch that must hold the answer are
decoded.
Left out: isolation levels; the caller says by `end_offset` what may be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import WireError
from ottla.storage.segment import Segment
from ottla.wire.batch_header import RECORDS_AT, BatchHeader
from ottla.wire.records import iter_records

INT64_MAX = (1 << 63) - 1
LOOK_BYTES = 1 << 14
"""The indexes lead to within a few batches of the answer."""

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch)"""


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int, end_offset: int, decompressed_bytes_max: int
) -> Found | None:
    """The first record of [start_offset, end_offset) with this timestamp or a later one."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            return None
        is_below_start = segment.is_sealed and segment.end_offset <= start_offset
        if is_below_start or segment.largest_timestamp() < timestamp_ms:
            continue
        segment.load_indexes()
        known_older = segment.base_offset + segment.times.lookup(timestamp_ms)
        for _, header, batch in segment.scan(segment.position_of(max(known_older, start_offset)), first_bytes=LOOK_BYTES):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            found = _first_in_batch(header, batch, timestamp_ms, start_offset, decompressed_bytes_max)
            if found is not None:
                return found if found[1] < end_offset else None
    return None


def newest(segments: Sequence[Segment], start_offset: int, end_offset: int, decompressed_bytes_max: int) -> Found | None:
    """The first of the records with the largest timestamp of all that are left (Kafka's ListOffsets -3)."""
    ordered = [segment for segment in segments if segment.size and not (segment.is_sealed and segment.end_offset <= start_offset)]
    if not ordered:
        return None
    timestamp = max(segment.largest_timestamp() for segment in ordered)
    found = first_at_or_after(segments, timestamp, start_offset, end_offset, decompressed_bytes_max) if timestamp >= 0 else None
    if found is not None or timestamp < 0 or ordered[0].base_offset >= start_offset:
        return found
    # The largest of the first segment stands below the start of the log.
    timestamp = max(
        (_largest_left(ordered[0], start_offset, decompressed_bytes_max), *(segment.largest_timestamp() for segment in ordered[1:]))
    )
    return first_at_or_after(segments, timestamp, start_offset, end_offset, decompressed_bytes_max) if timestamp >= 0 else None


def _largest_left(segment: Segment, start_offset: int, decompressed_bytes_max: int) -> int:
    """The largest timestamp in a segment from an offset on; -1 if there is none."""
    largest = -1
    for _, header, batch in segment.scan(segment.position_of(start_offset)):
        if header.last_offset < start_offset or header.max_timestamp <= largest:
            continue
        if header.base_offset >= start_offset or header.timestamp_type or len(batch) <= RECORDS_AT:
            largest = header.max_timestamp
            continue
        records = iter_records(batch, decompressed_bytes_max=decompressed_bytes_max)
        largest = max(largest, *(record.timestamp for record in records if record.offset >= start_offset), -1)
    return largest


def _first_in_batch(
    header: BatchHeader, batch: memoryview, timestamp_ms: int, start_offset: int, decompressed_bytes_max: int
) -> Found | None:
    if len(batch) <= RECORDS_AT:
        return None
    for record in iter_records(batch, decompressed_bytes_max=decompressed_bytes_max):
        timestamp = header.max_timestamp if header.timestamp_type else record.timestamp
        if timestamp >= timestamp_ms and record.offset >= start_offset:
            if timestamp > INT64_MAX:
                raise WireError(f"a record of the time {timestamp}")
            return timestamp, record.offset, header.partition_leader_epoch
    return None
