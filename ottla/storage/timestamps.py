"""Finds the first record not older than a timestamp, and the newest record of all.

The first segment whose largest timestamp reaches the wanted one is used; its time index gives an offset before which everything is older,
its offset index a position; from there batch headers are walked, and only the records of the one batch that must hold the answer are
read. Where headers lie, that may be many batches: a `TimeSearch` bounds what is done in one go.
Left out: isolation levels; the caller says by `end_offset` what may be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.storage.segment import Segment
from ottla.storage.time_search import ABOVE_ALL, NO_OFFSET, Found, TimeSearch
from ottla.wire.batch_header import RECORDS_AT

LOOK_BYTES = 1 << 14
"""The indexes lead to within a few batches of the answer."""


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int, end_offset: int, decompressed_bytes_max: int,
    search: TimeSearch | None = None,
) -> Found | None:  # fmt: skip
    """The first record of [start_offset, end_offset) with this timestamp or a later one. Raises `SearchPaused`."""
    search = search or TimeSearch()
    walk_from = search.start_for(timestamp_ms, start_offset)
    for segment in segments:
        if segment.base_offset >= end_offset:
            return None
        is_below_start = segment.is_sealed and segment.end_offset <= walk_from
        if is_below_start or segment.largest_timestamp() < timestamp_ms:
            continue
        segment.load_indexes()
        known_older = segment.base_offset + segment.times.lookup(timestamp_ms)
        for _, header, batch in segment.scan(segment.position_of(max(known_older, walk_from)), first_bytes=LOOK_BYTES):
            if header.base_offset >= end_offset:
                return None
            search.walk(header, timestamp_ms)
            if header.last_offset < start_offset or (header.max_timestamp < timestamp_ms and header.is_largest_time_credible):
                continue
            times = search.judge(header, batch, timestamp_ms, start_offset, decompressed_bytes_max)
            if times.offset != NO_OFFSET:
                return (times.timestamp, times.offset, header.partition_leader_epoch) if times.offset < end_offset else None
    return None


def newest(
    segments: Sequence[Segment], start_offset: int, end_offset: int, decompressed_bytes_max: int, search: TimeSearch | None = None
) -> Found | None:
    """The first of the records with the largest timestamp of all that are left (Kafka's ListOffsets -3). Raises `SearchPaused`.

    The largest timestamp of a segment may be of no record that is left: it lies below the start of the log, or compaction has kept the
    header of a batch without its records. Then that segment is searched for its largest one, and the next best segment is asked.
    """
    search = search or TimeSearch()
    left = [segment for segment in segments if segment.size and not (segment.is_sealed and segment.end_offset <= start_offset)]
    largest = -1
    for segment in sorted(left, key=Segment.largest_timestamp, reverse=True):
        if segment.largest_timestamp() <= largest:
            break
        largest = max(largest, _largest_left(segment, start_offset, end_offset, decompressed_bytes_max, search))
    return first_at_or_after(segments, largest, start_offset, end_offset, decompressed_bytes_max, search) if largest >= 0 else None


def _largest_left(segment: Segment, start_offset: int, end_offset: int, decompressed_bytes_max: int, search: TimeSearch) -> int:
    """The largest timestamp of the records in a segment from an offset on; -1 if there is none."""
    known = search.largest.get(segment.base_offset)
    if known is None:
        found = first_at_or_after([segment], segment.largest_timestamp(), start_offset, end_offset, decompressed_bytes_max, search)
        known = found[0] if found is not None else _walk_for_largest(segment, start_offset, decompressed_bytes_max, search)
        search.largest[segment.base_offset] = known
    return known


def _walk_for_largest(segment: Segment, start_offset: int, decompressed_bytes_max: int, search: TimeSearch) -> int:
    """The same by a walk over all batches of the segment."""
    walk_from, largest = search.left or (start_offset, -1)
    for _, header, batch in segment.scan(segment.position_of(walk_from)):
        if header.last_offset < walk_from:
            continue
        search.walk_left(header, largest)
        if (header.max_timestamp <= largest and header.is_largest_time_credible) or len(batch) <= RECORDS_AT:
            continue
        if header.timestamp_type:
            largest = header.max_timestamp
        else:
            largest = max(largest, search.judge(header, batch, ABOVE_ALL, start_offset, decompressed_bytes_max).max_timestamp)
    search.left = None
    return largest
