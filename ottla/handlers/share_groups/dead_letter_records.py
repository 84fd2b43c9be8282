"""The records of dead-letter topics (KIP-1191): the given-up records that are read from the log, and the batches that are written.

A dead letter has the headers of the original record and six more, `__dlq.errors.*`, with texts in UTF-8: `topic`, `partition` and `offset`
of the original record, `group`, `delivery.count`, and `message` with the reason. Key, value and original headers are copied only if the
group wants it. They are missing if the original cannot be read: a hole of compaction, or a damaged batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.errors import StorageError, WireError
from ottla.sharing.dead_letters import DeadLetters
from ottla.storage.file_slice import FileSlice
from ottla.wire.batch_header import BATCH_OVERHEAD, CONTROL_BIT, LOG_OVERHEAD, iter_batches
from ottla.wire.records import Headers, Record, encode_batch, iter_records

log = logging.getLogger("ottla.sharing")

PREFIX = "__dlq.errors."
REJECTED = "A member of the group has rejected the record."
SPENT = "The record was delivered as often as the group permits."
RECORD_OVERHEAD, HEADER_OVERHEAD = 32, 10
"""Upper bounds of the bytes that a record and a header need beside their own, in a batch of less than 2 GiB."""


class Originals(NamedTuple):
    """The given-up records by offset. All records up to `last_offset` are there that can be read."""

    records: Mapping[int, Record]
    last_offset: int


def read_originals(found: FileSlice, first_offset: int, last_offset: int, *, bytes_max: int, decompressed_bytes_max: int) -> Originals:
    """Reads the records from `first_offset` to `last_offset` that are in the slice, until they have more than `bytes_max` bytes. Called in
    a thread. Batches that cannot be decoded are skipped."""
    records: dict[int, Record] = {}
    size, end = 0, first_offset
    try:
        data = memoryview(found.read())
        for position, header in iter_batches(data):
            last = header.base_offset + header.last_offset_delta
            if header.base_offset > last_offset:
                return Originals(records, last_offset)
            if last >= first_offset and not header.attributes & CONTROL_BIT:
                batch = data[position : position + LOG_OVERHEAD + header.batch_length]
                size += _add_records(records, batch, first_offset, last_offset, bytes_max - size, decompressed_bytes_max)
                if size > bytes_max:
                    return Originals(records, max(records))
            end = max(end, last)
    except (StorageError, WireError) as error:
        log.error("dead letters from offset %d on are written without keys and values: %s", end, error)
        end = last_offset
    return Originals(records, min(end, last_offset))


def _add_records(
    records: dict[int, Record], batch: memoryview, first_offset: int, last_offset: int, bytes_max: int, decompressed_bytes_max: int
) -> int:
    """Adds the records of a batch from `first_offset` to `last_offset` that can be decoded, until they have more than `bytes_max` bytes.
    Returns their bytes."""
    size = 0
    try:
        for record in iter_records(batch, decompressed_bytes_max=decompressed_bytes_max):
            if record.offset > last_offset or size > bytes_max:
                break
            if record.offset >= first_offset:
                records[record.offset] = record
                size += size_of(record)
    except WireError as error:
        log.error("dead letters of a batch are written without keys and values: %s", error)
    return size


def write_batch(
    topic: str, letters: DeadLetters, first_offset: int, originals: Originals, now_ms: int, bytes_max: int
) -> tuple[bytearray, int]:
    """Returns a batch of the dead letters from `first_offset` on, and the offset of its last one. The batch has at most `bytes_max` bytes,
    unless a single dead letter is larger."""
    records: list[Record] = []
    size, last_offset = BATCH_OVERHEAD, max(first_offset, min(letters.last_offset, originals.last_offset))
    for offset in range(first_offset, last_offset + 1):
        original = originals.records.get(offset)
        headers = _context(topic, letters, offset)
        letter = Record(0, now_ms, None, None, headers)
        if original is not None:
            letter = Record(0, now_ms, original.key, original.value, original.headers + headers)
        size += size_of(letter)
        if records and size > bytes_max:
            break
        records.append(letter)
    return encode_batch(records), first_offset + len(records) - 1


def size_of(record: Record) -> int:
    """Returns an upper bound of the bytes of the record in a batch."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(HEADER_OVERHEAD + len(name.encode()) + len(value or b"") for name, value in record.headers)


def _context(topic: str, letters: DeadLetters, offset: int) -> Headers:
    group_id, _, partition = letters.key
    texts = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "group": group_id,
        "delivery.count": str(letters.delivery_count),
        "message": REJECTED if letters.was_rejected else SPENT,
    }
    return tuple((PREFIX + name, text.encode()) for name, text in texts.items())
