"""The format of a `.snapshot` file: the state of a partition's producers.

Kafka's format: version (int16, 1), CRC-32C of all that follows (uint32), and one entry a producer with its last batch only. With these
entries alone a restarted broker could recognize a retry of the last batch, but not of the four before it. So the file has a second part of
our own, under the same CRC: all cached batches with their CRCs, the length of the contiguous run of sequences, the start of the idle time,
and the completed transactions whose marker was at or above the high watermark when the file was written. Kafka's reader ignores our part,
and we read a file without it as Kafka does.

Invariant: decode(encode(state)) is the state. A damaged file is a `StorageError`, and the caller falls back to an older one and the
log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.base.errors import StorageError
from ottla.wire.batch_header import SEQUENCE_MASK
from ottla.wire.checksum import crc32c

VERSION = 1
PIECE_BYTES = 1 << 20
_HEAD = Struct(">hI")
HEAD_BYTES = _HEAD.size
_COUNT = Struct(">i")
# Id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the open transaction.
_ENTRY = Struct(">qhiqiqiq")

_OURS = Struct(">4shii")  # magic, version, producers, completed transactions
_OURS_MAGIC = b"OTLA"
_OURS_VERSION = 2
_MONOTONIC_VERSION = 1
"""This version measured idle time with a clock that restarts with the machine. The rest is the same."""
_OUR_ENTRY = Struct(">qqqi")  # id, run length, idle since, batches
_OUR_BATCH = Struct(">iiqqqq")
_OUR_COMPLETED = Struct(">qq")


class CachedBatch(NamedTuple):
    """One appended batch. `fingerprint` is its CRC and codec (crc << 3 | codec) as the client sent it, -1 where that is not known."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    fingerprint: int


class ProducerRow(NamedTuple):
    """One producer in a snapshot. `idle_since_ms` is wall time, -1 if it is not known."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_timestamp: int
    transaction_first_offset: int
    run_length: int
    idle_since_ms: int
    batches: tuple[CachedBatch, ...]


def encode_snapshot(rows: Iterable[ProducerRow], completed: Sequence[tuple[int, int]]) -> bytes:
    """Returns the content of a file. `completed`: (first offset, marker's offset) of transactions with a marker that was not below the high
    watermark.
    """
    encoder = SnapshotEncoder()
    for row in rows:
        encoder.add(row)
    body = b"".join(encoder.pieces(completed))
    return snapshot_head(crc32c(body)) + body


def snapshot_head(crc: int) -> bytes:
    """Returns the head of a file whose body has this checksum."""
    return _HEAD.pack(VERSION, crc)


class SnapshotEncoder:
    """A snapshot that is made producer by producer."""

    def __init__(self) -> None:
        self._count = 0
        self._entries = bytearray()
        self._ours = bytearray()

    def add(self, row: ProducerRow) -> None:
        last_sequence, last_offset, delta = -1, -1, 0
        if row.batches:
            batch = row.batches[-1]
            last_sequence, last_offset, delta = batch.last_sequence, batch.last_offset, batch.last_offset - batch.base_offset
        self._count += 1
        self._entries += _ENTRY.pack(
            row.producer_id,
            row.epoch,
            last_sequence,
            last_offset,
            delta,
            row.last_timestamp,
            row.coordinator_epoch,
            row.transaction_first_offset,
        )
        self._ours += _OUR_ENTRY.pack(row.producer_id, row.run_length, row.idle_since_ms, len(row.batches))
        for batch in row.batches:
            self._ours += _OUR_BATCH.pack(*batch)

    def pieces(self, completed: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yields the file's content after `snapshot_head`, in pieces of at most `PIECE_BYTES` (the completed transactions in one piece)."""
        yield _COUNT.pack(self._count)
        yield from _cut(self._entries)
        yield _OURS.pack(_OURS_MAGIC, _OURS_VERSION, self._count, len(completed))
        yield from _cut(self._ours)
        yield b"".join(_OUR_COMPLETED.pack(*pair) for pair in completed)


def _cut(data: bytearray) -> Iterator[bytes]:
    for at in range(0, len(data), PIECE_BYTES):
        yield bytes(data[at : at + PIECE_BYTES])


def decode_snapshot(data: bytes, name: str) -> tuple[list[ProducerRow], list[tuple[int, int]]]:
    """Returns the rows and the completed transactions. Raises `StorageError` with `name` for a damaged file."""
    try:
        version, crc = _HEAD.unpack_from(data)
        if version != VERSION:
            raise StorageError(f"producer snapshot of {name} has version {version}, only {VERSION} can be read")
        if crc32c(memoryview(data)[_HEAD.size :]) != crc:
            raise StorageError(f"producer snapshot of {name} has a wrong CRC")
        position = _HEAD.size + _COUNT.size
        count: int = _COUNT.unpack_from(data, _HEAD.size)[0]
        # The size is checked before memory is allocated for `count` producers.
        if count < 0 or position + count * _ENTRY.size > len(data):
            raise StorageError(f"producer snapshot of {name} says {count} producers in {len(data)} bytes")
        rows = [_kafka_row(data, position + index * _ENTRY.size) for index in range(count)]
        position += count * _ENTRY.size
        if data[position : position + len(_OURS_MAGIC)] != _OURS_MAGIC:
            return rows, []
        return _read_our_part(data, position, rows)
    except StructError:
        raise StorageError(f"producer snapshot of {name} is cut off") from None


def _kafka_row(data: bytes, position: int) -> ProducerRow:
    """Returns a producer with the state in Kafka's entry: its last batch without a CRC, or no batch."""
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = _ENTRY.unpack_from(data, position)
    batches: tuple[CachedBatch, ...] = ()
    if last_offset >= 0:
        first_sequence = (last_sequence - delta) & SEQUENCE_MASK if last_sequence >= 0 else -1
        batches = (CachedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp, -1),)
    run_length = delta + 1 if batches else 0
    return ProducerRow(producer_id, epoch, coordinator_epoch, timestamp, first_offset, run_length, -1, batches)


def _read_our_part(data: bytes, position: int, rows: list[ProducerRow]) -> tuple[list[ProducerRow], list[tuple[int, int]]]:
    _, version, count, completed_count = _OURS.unpack_from(data, position)
    if version not in (_OURS_VERSION, _MONOTONIC_VERSION):
        return rows, []
    position += _OURS.size
    if count != len(rows):
        raise StructError("the two parts disagree")
    fuller = []
    for row in rows:
        producer_id, run_length, idle_since_ms, batch_count = _OUR_ENTRY.unpack_from(data, position)
        position += _OUR_ENTRY.size
        if producer_id != row.producer_id:
            raise StructError("the two parts disagree")
        batches = []
        for _ in range(batch_count):
            batches.append(CachedBatch(*_OUR_BATCH.unpack_from(data, position)))
            position += _OUR_BATCH.size
        if version == _MONOTONIC_VERSION:
            idle_since_ms = -1
        fuller.append(row._replace(run_length=run_length, idle_since_ms=idle_since_ms, batches=tuple(batches)))
    completed: list[tuple[int, int]] = []
    for _ in range(completed_count):
        completed.append(_OUR_COMPLETED.unpack_from(data, position))
        position += _OUR_COMPLETED.size
    return fuller, completed
