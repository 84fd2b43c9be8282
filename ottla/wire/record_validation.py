"""May this batch, sent by a stranger, be trusted by everyone who will read it later?

`validate_records` walks every record of one batch without building any, and holds what Kafka's readers rely on: CRC, count, consecutive
offset deltas, lengths that add up, header keys that are there and are UTF-8, timestamps inside 64 bits. Answers what a caller must judge
by its own configuration (smallest and largest timestamp, unpacked size). `CORRUPT_MESSAGE` means bytes damaged on the way, which a client
sends again; `INVALID_RECORD` means bytes that were made wrong, which it must not.

Left out: producer sequences, transactions, who may send a control batch (`storage`).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.wire.batch_header import DECOMPRESSED_BYTES_MAX, MAGIC, BatchHeader, Buffer, check_crc, read_batch_header, record_section

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1


class RecordsSummary(NamedTuple):
    """What one walk over the records has seen."""

    min_timestamp: int
    max_timestamp: int
    unpacked_bytes: int


def validate_records(
    batch: Buffer, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX, is_key_required: bool = False
) -> RecordsSummary:
    """Refuses with `ApiError` unless `batch` is exactly one sound batch; `is_key_required` is for compacted topics."""
    header = _validate_header(batch)
    try:
        section = record_section(batch, header, decompressed_bytes_max)
        # A bytearray or memoryview costs as much to index as bytes, so the section is not copied.
        return _walk_records(section, header, is_key_required)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{error}") from None
    except IndexError:
        raise ApiError(ErrorCode.INVALID_RECORD, "a record ends behind the end of its batch") from None


def _validate_header(batch: Buffer) -> BatchHeader:
    try:
        header = read_batch_header(batch)
    except WireError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error}") from None
    if header.magic != MAGIC:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of magic {header.magic}, only {MAGIC} is taken")
    size = header.size_bytes
    if size < len(batch):
        raise ApiError(ErrorCode.INVALID_RECORD, f"{len(batch) - size} bytes are left behind the one batch that a partition may bring")
    if not check_crc(batch, 0, size):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a record batch is cut off or its CRC is wrong")
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        message = f"a batch of {header.record_count} records whose last offset delta is {header.last_offset_delta}"
        raise ApiError(ErrorCode.INVALID_RECORD, message)
    return header


def _walk_records(data: Buffer, header: BatchHeader, is_key_required: bool) -> RecordsSummary:
    base_timestamp = header.base_timestamp
    min_timestamp, max_timestamp = _INT64_MAX, _INT64_MIN
    data_end, position = len(data), 0
    for index in range(header.record_count):
        size, position = _read_signed(data, position, 32)
        end = position + size
        if size < 0 or end > data_end:
            raise WireError(f"record {index} says {size} bytes, {data_end - position} are left")
        delta, position = _read_signed(data, position + 1, 64)
        timestamp = base_timestamp + delta
        if timestamp < min_timestamp:
            min_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        offset_delta, position = _read_signed(data, position, 32)
        if offset_delta != index:
            raise WireError(f"record {index} has offset delta {offset_delta}")
        size, position = _read_signed(data, position, 32)
        if size >= 0:
            position += size
        elif size < -1:
            raise WireError(f"record {index} has a key of {size} bytes")
        elif is_key_required:
            raise WireError(f"record {index} has no key, which a compacted topic needs")
        size, position = _read_signed(data, position, 32)
        if size > 0:
            position += size
        elif size < -1:
            raise WireError(f"record {index} has a value of {size} bytes")
        if data[position]:
            position = _walk_headers(data, position, end, index)
        else:
            position += 1
        if position != end:
            raise WireError(f"record {index} is not as long as it says")
    if position != data_end:
        raise WireError(f"{data_end - position} bytes are left behind the last record")
    if min_timestamp < _INT64_MIN or max_timestamp > _INT64_MAX:
        raise WireError("a timestamp is beyond 64 bits")
    return RecordsSummary(min_timestamp, max_timestamp, data_end)


def _walk_headers(data: Buffer, position: int, end: int, index: int) -> int:
    count, position = _read_signed(data, position, 32)
    if not 0 <= count <= end - position:
        raise WireError(f"record {index} says {count} headers, {end - position} bytes are left")
    for _ in range(count):
        size, position = _read_signed(data, position, 32)
        if not 0 <= size <= end - position:
            raise WireError(f"record {index} has a header key of {size} bytes")
        try:
            str(data[position : position + size], "utf-8")
        except UnicodeDecodeError:
            raise WireError(f"record {index} has a header key that is not UTF-8") from None
        size, position = _read_signed(data, position + size, 32)
        if not -1 <= size <= end - position:
            raise WireError(f"record {index} has a header value of {size} bytes")
        if size > 0:
            position += size
    return position


def _read_signed(data: Buffer, position: int, bits: int) -> tuple[int, int]:
    """A zigzag varint and where it ends; more than `bits` bits are refused."""
    byte = data[position]
    position += 1
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), position
    number = byte & 127
    for shift in range(7, bits, 7):
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> bits:
                break
            return number >> 1 ^ -(number & 1), position
    raise WireError("a varint is too long")
