"""Finds a time index that lacks records, and makes the right one, while a check reads the batches of its segment (`segment_check.py`).

An entry promises that all records before its batch are older than its timestamp, and the last entry has the largest timestamp of a sealed
segment. A look-up by time skips records by both. Older versions of Ottla believed the largest timestamps in the headers. If some headers of
a segment are wrong, their index lacks entries for these batches, although it is well-formed.
"""

from __future__ import annotations

from ottla.base.ports import Disk
from ottla.base.types import NO_TIMESTAMP
from ottla.storage.index import RELATIVE_OFFSET_MAX, TimeIndex
from ottla.storage.segment import TIME_INDEX_SUFFIX, Segment
from ottla.wire.batch_header import BatchHeader, Buffer
from ottla.wire.record_times import largest_time


class TimeIndexCheck:
    """The check of one segment's time index. All of its valid batches are passed to `add`, in a thread; the rest runs on the loop."""

    def __init__(self, disk: Disk, segment: Segment) -> None:
        self._disk = disk
        self._base_offset = segment.base_offset
        self._interval_bytes = segment.index_interval_bytes
        self._unpacked_bytes_max = segment.unpacked_bytes_max
        self._stored = TimeIndex(segment.path(TIME_INDEX_SUFFIX))
        self._made = TimeIndex(self._stored.path)
        self._next_entry = 0  # in the stored index
        self._indexed_position = 0
        self._largest, self._largest_at = NO_TIMESTAMP, 0
        self._next_offset = segment.base_offset
        self._lacks_records = False

    def add(self, position: int, header: BatchHeader, batch: Buffer) -> None:
        if position == 0:
            self._stored.load(self._disk, RELATIVE_OFFSET_MAX + 1)  # a damaged index has no entries, and its first use rebuilds it
        stored, last = self._stored, header.last_offset - self._base_offset
        while self._next_entry < len(stored) and stored.offsets[self._next_entry] <= last:
            self._lacks_records |= self._largest >= stored.timestamps[self._next_entry]
            self._next_entry += 1
        timestamp = largest_time(header, batch, self._unpacked_bytes_max)
        if timestamp > self._largest:
            self._largest, self._largest_at = timestamp, last
        if position - self._indexed_position > self._interval_bytes:
            self._made.maybe_append(self._largest, self._largest_at)
            self._indexed_position = position
        self._next_offset = header.next_offset

    def mend(self, segment: Segment) -> bool:
        """Gives the segment the right index if it has a wrong one, and returns whether it had. Raises `StorageError`."""
        if not self._lacks_records and (self._largest == NO_TIMESTAMP or segment.largest_timestamp() >= self._largest):
            return False
        self._made.maybe_append(self._largest, self._largest_at)
        segment.load_indexes()
        self._replace(segment)
        return True

    def _replace(self, segment: Segment) -> None:
        """Replaces the index, and keeps the entries of batches that were appended after the check."""
        made, known = self._made, segment.times
        later = known.count_below(self._next_offset - self._base_offset)
        for timestamp, relative_offset in zip(known.timestamps[later:], known.offsets[later:], strict=True):
            made.maybe_append(timestamp, relative_offset)
        made.write(self._disk)
        segment.times = made
        timestamp, relative_offset = made.last
        if timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = timestamp, self._base_offset + relative_offset
