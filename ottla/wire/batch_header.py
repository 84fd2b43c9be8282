"""Reads the header of a record batch (its first 61 bytes), and writes the fields that the broker may change.

A batch (magic 2) is the unit of the log: the broker stores and sends the bytes that the client sent. The CRC-32C covers byte 21 to the end,
so base offset and leader epoch are cheap to overwrite. A new timestamp, producer or attribute needs a new CRC.

Invariants: no function assumes that a buffer is as long as a header says; `iter_batches` always moves forward. `read_batch_header` does not
check the magic byte, so that a caller can name the format that it refuses (`legacy_magic`). `record_section`, which decompresses the
records, checks it. `records.py` has the records themselves; `storage` decides whether a batch may be appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.base.errors import WireError
from ottla.wire.checksum import crc32c
from ottla.wire.compression import decompress

Buffer = bytes | bytearray | memoryview

BASE_OFFSET_AT = 0
BATCH_LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
_LEGACY_MESSAGE_BYTES_MIN = 14
"""Size in bytes of the shortest message from before Kafka 0.11: CRC, magic byte, attributes, and the lengths of key and value."""
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57
RECORDS_AT = 61

LOG_OVERHEAD = 12
"""Bytes of the base offset and the length, which `batch_length` does not count."""
BATCH_OVERHEAD = 61
BATCH_LENGTH_MIN = BATCH_OVERHEAD - LOG_OVERHEAD
MAGIC = 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

CREATE_TIME = 0
LOG_APPEND_TIME = 1

SEQUENCE_MASK = 0x7FFFFFFF
"""The largest sequence number. The next one is 0."""

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Default limit of the decompressed bytes of one batch."""

HEADER = Struct(">qiibIhiqqqhii")
_PRODUCER = Struct(">qhi")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_UINT32 = Struct(">I")
_new_tuple = tuple.__new__


class BatchHeader(NamedTuple):
    """The fixed fields of one batch, in the order of the wire format."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """From this time on (in milliseconds) compaction may remove this batch's tombstones and markers (KIP-534). None: no such time is
        set. The field of the base timestamp contains it.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def is_largest_time_credible(self) -> bool:
        """Whether `max_timestamp` can be the records' largest timestamp. Some producers leave it at -1 (Sarama 1.43) or take it from an
        older record. It is wrong if it is below the first record's timestamp. The broker itself always writes the right one.
        """
        made_here = TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT | CONTROL_BIT
        return self.max_timestamp >= self.base_timestamp or self.attributes & made_here != 0 or self.record_count == 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 for a batch without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header at `position`. The batch may be incomplete, and its magic is not checked. Raises `WireError` if the header is
    incomplete or the batch's length is shorter than a header.
    """
    try:
        header: BatchHeader = _new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))
    except StructError:
        raise WireError(f"a record batch needs {BATCH_OVERHEAD} bytes, only {len(buffer) - position} are left") from None
    if header.batch_length < BATCH_LENGTH_MIN:
        raise WireError(f"a record batch of length {header.batch_length} is shorter than its own header")
    return header


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of each complete batch. An incomplete batch at the end, which a Fetch response may have, is skipped. Raises
    `WireError` for a batch that is shorter than its header."""
    end = len(buffer)
    while position + BATCH_OVERHEAD <= end:
        header = read_batch_header(buffer, position)
        following = position + LOG_OVERHEAD + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def legacy_magic(buffer: Buffer, position: int = 0) -> int | None:
    """Returns 0 or 1 if the bytes are a message set from before Kafka 0.11, else None.

    Its magic byte and its size are at the same place as in a batch. Bytes that are all zero are not a message set, because its size is not
    0.
    """
    if len(buffer) - position <= MAGIC_AT:
        return None
    size = int.from_bytes(buffer[position + BATCH_LENGTH_AT : position + BATCH_LENGTH_AT + 4], "big", signed=True)
    magic = buffer[position + MAGIC_AT]
    return magic if magic < MAGIC and size >= _LEGACY_MESSAGE_BYTES_MIN else None


def check_crc(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the batch of `size` bytes at `position` is complete and its CRC is right."""
    if size < BATCH_OVERHEAD or len(buffer) - position < size:
        return False
    expected: int = _UINT32.unpack_from(buffer, position + CRC_AT)[0]
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size]) == expected


def stamp_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    _UINT32.pack_into(buffer, position + CRC_AT, crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size]))


def stamp_producer(
    buffer: bytearray | memoryview,
    position: int,
    size: int,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool = True,
) -> None:
    """Writes the producer's id, epoch and first sequence number into a batch, marks it as transactional if `is_transactional`, and writes
    the CRC.
    """
    if is_transactional:
        buffer[position + ATTRIBUTES_AT + 1] |= TRANSACTIONAL_BIT
    _PRODUCER.pack_into(buffer, position + PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    stamp_crc(buffer, position, size)


def set_base_offset(buffer: bytearray | memoryview, position: int, base_offset: int) -> None:
    _INT64.pack_into(buffer, position, base_offset)


def set_leader_epoch(buffer: bytearray | memoryview, position: int, leader_epoch: int) -> None:
    _INT32.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, timestamp_type: int, max_timestamp: int) -> None:
    """Writes the timestamp type, the largest timestamp and the CRC. With LOG_APPEND_TIME the largest timestamp is every record's
    timestamp.
    """
    header = read_batch_header(buffer, position)
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, max_timestamp)
    set_attributes(buffer, position, attributes)


def set_attributes(buffer: bytearray | memoryview, position: int, attributes: int) -> None:
    """Writes the attributes and the CRC."""
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    batch_length: int = _INT32.unpack_from(buffer, position + BATCH_LENGTH_AT)[0]
    stamp_crc(buffer, position, LOG_OVERHEAD + batch_length)


def record_section(batch: Buffer, header: BatchHeader, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Returns the decompressed bytes of the records of the batch at the start of `batch`. They are not copied if they are not compressed.
    Raises `WireError` for another magic, an incomplete batch, or bytes that cannot be decompressed to `decompressed_bytes_max` or fewer.
    """
    if header.magic != MAGIC:
        raise WireError(f"a record batch of magic {header.magic} cannot be read, only {MAGIC}")
    if header.size_bytes > len(batch):
        raise WireError(f"a record batch of {header.size_bytes} bytes is cut off after {len(batch)}")
    section = memoryview(batch)[RECORDS_AT : header.size_bytes]
    codec = header.attributes & CODEC_MASK
    if codec == 0 or (header.record_count == 0 and not section):
        return section
    return decompress(codec, section, decompressed_bytes_max)
