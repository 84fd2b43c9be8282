"""Changes records while they are cloned: drops keys that are not in the sample, and calls a function of the user.

Offsets, producers and sequences are kept, and so are timestamps unless the function changes them. A batch keeps its header, as after a
compaction; a batch without records is only a header. A consumer sees gaps between offsets, as in a compacted topic. Markers are not
changed.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from ottla.base.types import TopicPartition
from ottla.wire.batch_header import iter_batches
from ottla.wire.records import Record, iter_records, rewrite_batch

Transform = Callable[[TopicPartition, Record], Record | None]
"""Returns the record to store in place of the given one, or None to drop it. The stored record always has the offset of the given one."""

SAMPLE_PARTS = 1 << 32


class RecordChange:
    """The changes of one clone. `sample` is the part of the keys to keep, from 0 to 1."""

    def __init__(self, sample: float = 1.0, transform: Transform | None = None) -> None:
        self._limit = int(sample * SAMPLE_PARTS)
        self._transform = transform

    def apply(self, partition: TopicPartition, batches: memoryview) -> memoryview:
        """Returns the batches with their records changed. Raises `WireError` if records cannot be read, and the errors of `transform`."""
        changed = bytearray()
        for position, header in iter_batches(batches):
            batch = batches[position : position + header.size_bytes]
            if not header.is_control and header.record_count:
                kept = [one for record in iter_records(batch) if (one := self._changed(partition, record)) is not None]
                changed += rewrite_batch(header, kept)
            else:
                changed += batch
        return memoryview(changed)

    def _changed(self, partition: TopicPartition, record: Record) -> Record | None:
        # A record without a key is sampled by its value. CRC-32 does not depend on the hash that chose the partition.
        sampled_by = record.key if record.key is not None else record.value
        if self._limit < SAMPLE_PARTS and crc32(sampled_by or b"") >= self._limit:
            return None
        if self._transform is None:
            return record
        found = self._transform(partition, record)
        return None if found is None else found._replace(offset=record.offset)
