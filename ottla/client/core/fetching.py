"""What is in the answer to a Fetch: record batches, of which a reader may see some.

`visible_batches` walks headers only, so the next request can leave before any record is decoded. Under read_committed it drops the batches
of aborted transactions: the answer lists their producers with the first offset of each, and an abort marker ends one. Control batches are
never data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import WireError
from ottla.base.types import TopicPartition
from ottla.wire.batch_header import MAGIC, BatchHeader, Buffer, check_crc, iter_batches
from ottla.wire.records import CONTROL_ABORT, ControlRecord, Record, iter_records, read_control_record


class Fetched(NamedTuple):
    """Batches of one partition from `start` on, as they came; records are decoded when asked for."""

    partition: TopicPartition
    start: int
    next_offset: int
    batches: Sequence[tuple[BatchHeader, Buffer]]
    markers: Sequence[tuple[BatchHeader, ControlRecord]]
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int

    def records(self) -> Iterator[Record]:
        """The records at or behind `start`; a batch may begin before it."""
        for header, batch in self.batches:
            if header.base_offset >= self.start:
                yield from iter_records(batch)
            else:
                yield from (record for record in iter_records(batch) if record.offset >= self.start)


def read_partition(partition: TopicPartition, start: int, result: Any, *, is_committed_only: bool) -> Fetched:
    """A partition's part of a Fetch answer. WireError when its batches are broken."""
    data = result.records
    batches: list[tuple[BatchHeader, Buffer]] = []
    markers: list[tuple[BatchHeader, ControlRecord]] = []
    next_offset = start
    if data is not None and len(data):
        aborted = sorted(((entry.first_offset, entry.producer_id) for entry in result.aborted_transactions or ()), reverse=True)
        open_aborts: set[int] = set()
        for position, header in iter_batches(data):
            batch = memoryview(data)[position : position + header.size_bytes]
            if header.magic != MAGIC:
                raise WireError(f"{partition} holds batches of magic {header.magic}, only {MAGIC} can be read")
            if not check_crc(batch, 0, header.size_bytes):
                raise WireError(f"the batch at offset {header.base_offset} of {partition} is damaged (its checksum is wrong)")
            next_offset = max(next_offset, header.next_offset)
            if header.last_offset < start:
                continue
            if is_committed_only:
                while aborted and aborted[-1][0] <= header.last_offset:
                    open_aborts.add(aborted.pop()[1])
            if header.is_control:
                marker = read_control_record(batch)
                if marker is not None:
                    markers.append((header, marker))
                    if marker.kind == CONTROL_ABORT:
                        open_aborts.discard(header.producer_id)
            elif not (is_committed_only and header.is_transactional and header.producer_id in open_aborts):
                batches.append((header, batch))
    return Fetched(
        partition,
        start,
        next_offset,
        batches,
        markers,
        result.log_start_offset,
        result.last_stable_offset if result.last_stable_offset >= 0 else result.high_watermark,
        result.high_watermark,
    )
