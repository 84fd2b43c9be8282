"""Checks every record of a batch that a client sent, so that later readers can rely on them.

`validate_records` reads every record of one batch without building objects. It checks what Kafka's readers rely on: CRC, number of records,
consecutive offset deltas, lengths that add up, header keys that are not null and are UTF-8, timestamps of at most 64 bits. It returns what
its caller compares with the topic's configuration (smallest and largest timestamp, decompressed size). `CORRUPT_MESSAGE` means that bytes
were damaged on the way: clients send the batch again. `INVALID_RECORD` means that the client wrote it wrong: clients do not send it again.
For compacted topics, records without a key are named one by one, so that a producer can distinguish them from the good records of the same
batch.

`storage` checks producer sequences, transactions, and who may send a control batch.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode, RecordsRefused, WireError
from ottla.wire.batch_header import DECOMPRESSED_BYTES_MAX, MAGIC, BatchHeader, Buffer, check_crc, read_batch_header, record_section

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1
_NULL_ZIGZAG = 1
UNBOUNDED = 1 << 62
FAULTS_NAMED_MAX = 1_000
"""Maximum number of bad records of a batch that are named one by one."""


class TooManySteps(WireError):
    """The records have more headers than the caller allows."""


class RecordsSummary(NamedTuple):
    min_timestamp: int
    max_timestamp: int
    unpacked_bytes: int


def validate_records(
    batch: Buffer, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX, is_key_required: bool = False
) -> RecordsSummary:
    """Raises `ApiError` unless `batch` is exactly one batch without a fault. Compacted topics set `is_key_required`."""
    header = _validate_header(batch)
    try:
        section = _indexable(record_section(batch, header, decompressed_bytes_max))
        return _walk_records(section, header, is_key_required, UNBOUNDED)
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{error}") from None
    except IndexError:
        raise ApiError(ErrorCode.INVALID_RECORD, "a record ends behind the end of its batch") from None


def validate_section(section: Buffer, header: BatchHeader, *, is_key_required: bool, steps_max: int) -> Buffer:
    """As `validate_records`, for the decompressed records of a batch whose header is known to be right. Returns them. Raises `WireError`
    for faulty records, `TooManySteps` if they have more than `steps_max` headers, and `ApiError` for records without a key.
    """
    section = _indexable(section)
    try:
        _walk_records(section, header, is_key_required, steps_max)
    except IndexError:
        raise WireError("a record ends behind the end of its batch") from None
    return section


def _indexable(section: Buffer) -> Buffer:
    """Copies a memoryview into bytes: an index into a memoryview takes twice as long, and the copy takes little."""
    return bytes(section) if isinstance(section, memoryview) else section


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
        message = f"a batch of {counted(header.record_count, 'record')} whose last offset delta is {header.last_offset_delta}"
        raise ApiError(ErrorCode.INVALID_RECORD, message)
    return header


def read_zigzag(data: Buffer, position: int, bits: int = 32) -> tuple[int, int]:
    """Returns (varint, still zigzag-encoded, position after it). Raises `WireError` for more than `bits` bits."""
    number = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> bits:
                break
            return number, position
    raise WireError("a varint in a record is too long")


def _walk_records(data: Buffer, header: BatchHeader, is_key_required: bool, fields_left: int) -> RecordsSummary:
    """Checks the form of every record. A read beyond the end raises IndexError. A length that is too large moves `position` beyond the
    record's end, which is checked.
    """
    min_delta = max_delta = 0
    data_end, position, zigzag_before = len(data), 0, -1
    keyless, keyless_count = list[int](), 0
    for index in range(header.record_count):
        number = data[position]
        if number < 128:
            position += 1
        elif (high := data[position + 1]) < 128:
            number += (high << 7) - 128
            position += 2
        else:
            number, position = read_zigzag(data, position)
        end = position + (number >> 1)
        if number & 1 or end > data_end:
            raise WireError(f"record {index} is longer than its batch")
        number = data[position + 1]
        if number < 128:
            position += 2
        else:
            number, position = read_zigzag(data, position + 1, 64)
        if number != zigzag_before:
            delta = number >> 1 ^ -(number & 1)
            min_delta = delta if zigzag_before < 0 or delta < min_delta else min_delta
            max_delta = delta if zigzag_before < 0 or delta > max_delta else max_delta
            zigzag_before = number
        number = data[position]
        if number < 128:
            position += 1
        elif (high := data[position + 1]) < 128:
            number += (high << 7) - 128
            position += 2
        else:
            number, position = read_zigzag(data, position)
        if number != index << 1:
            raise WireError(f"record {index} has offset delta {number >> 1 ^ -(number & 1)}")
        if data[position] == _NULL_ZIGZAG:
            position += 1
            if is_key_required:
                keyless_count += 1
                keyless += (index,) if keyless_count <= FAULTS_NAMED_MAX else ()
        else:
            position = _skip_blob(data, position, index)
        number = data[position]
        if number > 127 and (high := data[position + 1]) < 128 and not number & 1:
            position += 2 + ((number + (high << 7) - 128) >> 1)
        else:
            position = _skip_blob(data, position, index)
        if data[position]:
            position, fields_left = _walk_headers(data, position, end, index, fields_left)
        else:
            position += 1
        if position != end:
            raise WireError(f"record {index} is not as long as it says")
    if position != data_end:
        raise WireError(f"{data_end - position} bytes are left behind the last record")
    if keyless:
        raise _keyless(keyless, keyless_count, header.record_count)
    return _summarize(header.base_timestamp, min_delta, max_delta, data_end)


def _summarize(base: int, min_delta: int, max_delta: int, unpacked_bytes: int) -> RecordsSummary:
    if base + min_delta < _INT64_MIN or base + max_delta > _INT64_MAX:
        raise WireError("a timestamp is beyond 64 bits")
    return RecordsSummary(base + min_delta, base + max_delta, unpacked_bytes)


def _keyless(named: list[int], keyless_count: int, record_count: int) -> RecordsRefused:
    message = f"no key in {keyless_count} of {counted(record_count, 'record')}; a compacted topic needs keys"
    return RecordsRefused(ErrorCode.INVALID_RECORD, message, dict.fromkeys(named, "A compacted topic needs a key in every record."))


def _skip_blob(data: Buffer, position: int, index: int) -> int:
    """Returns the position after a key or value, which may be null."""
    number, position = read_zigzag(data, position)
    if not number & 1:
        return position + (number >> 1)
    if number != _NULL_ZIGZAG:
        raise WireError(f"record {index} has a key or value of negative length")
    return position


def _walk_headers(data: Buffer, position: int, end: int, index: int, fields_left: int) -> tuple[int, int]:
    number, position = read_zigzag(data, position)
    if number & 1 or number > end - position:
        # A header takes two bytes or more, and `number` is twice the count.
        raise WireError(f"record {index} says {number >> 1} headers, {end - position} bytes are left")
    fields_left -= number >> 1
    if fields_left < 0:
        raise TooManySteps(f"record {index} has {number >> 1} headers")
    for _ in range(number >> 1):
        number, position = read_zigzag(data, position)
        following = position + (number >> 1)
        if number & 1 or following > end:
            raise WireError(f"record {index} has a header key of no or too great length")
        try:
            str(data[position:following], "utf-8")
        except UnicodeDecodeError:
            raise WireError(f"record {index} has a header key that is not UTF-8") from None
        position = _skip_blob(data, following, index)
        if position > end:
            raise WireError(f"record {index} has a header value that is longer than the record")
    return position, fields_left
