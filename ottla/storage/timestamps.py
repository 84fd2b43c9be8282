"""Finds the first record that is not older than a timestamp, and the record with the largest timestamp.

Segments with an older largest timestamp are skipped. In the first other one, the time index gives an offset before which all batches are
older, and the offset index its position. From there the headers of batches are read, and the records of the batches that may have the
answer: usually one, but many if their headers have wrong timestamps. A `TimeSearch` limits the work of one call. The caller handles
isolation levels: it passes the end of the visible records as `end_offset`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.storage.segment import Segment
from ottla.storage.time_search import ABOVE_ALL, NO_OFFSET, Found, TimeSearch
from ottla.wire.batch_header import RECORDS_AT

LOOK_BYTES = 1 << 14
"""Bytes of the first piece that is read. The indexes give a position a few batches before the answer."""


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int, end_offset: int, decompressed_bytes_max: int,
    search: TimeSearch | None = None,
) -> Found | None:  # fmt: skip
    """Returns the first record of [start_offset, end_offset) with this timestamp or a later one. Raises `SearchPaused`."""
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
    """Returns the first record with the largest timestamp of all existing records (Kafka's ListOffsets -3). Raises `SearchPaused`.

    The record with a segment's largest timestamp may no longer exist: it is below the start of the log, or compaction has kept only the
    header of its batch. Then the segment is searched for its largest existing timestamp, and other segments with a larger timestamp are
    searched too.
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
    """Returns the largest timestamp of the records in a segment from `start_offset` on; -1 if there is none."""
    known = search.largest.get(segment.base_offset)
    if known is None:
        found = first_at_or_after([segment], segment.largest_timestamp(), start_offset, end_offset, decompressed_bytes_max, search)
        known = found[0] if found is not None else _walk_for_largest(segment, start_offset, decompressed_bytes_max, search)
        search.largest[segment.base_offset] = known
    return known


def _walk_for_largest(segment: Segment, start_offset: int, decompressed_bytes_max: int, search: TimeSearch) -> int:
    """Does the work of `_largest_left` by reading all batches of the segment that may have a larger timestamp than the batches before."""
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
