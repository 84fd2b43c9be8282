"""Checks every record of a batch that a client sent, so that later readers can rely on them.

`validate_section` reads every record without building objects. It checks what Kafka's readers rely on: number of records, consecutive
offset deltas, lengths that add up, header keys that are not null and are UTF-8, timestamps of at most 64 bits. For compacted topics,
records without a key are named one by one (up to `FAULTS_NAMED_MAX`), so that a producer can distinguish them from the good records of the
same batch.

`storage` checks headers, CRCs, producer sequences, transactions, and who may send a control batch.
"""

from __future__ import annotations

from ottla.base.counted import counted
from ottla.base.errors import ErrorCode, RecordsRefused, WireError
from ottla.wire.batch_header import BatchHeader, Buffer

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1
_NULL_ZIGZAG = 1
UNBOUNDED = 1 << 62
FAULTS_NAMED_MAX = 1_000
"""Maximum number of bad records of a batch that are named one by one."""


class TooManySteps(WireError):
    """The records have more headers than the caller allows."""


def validate_section(section: Buffer, header: BatchHeader, *, is_key_required: bool, steps_max: int) -> Buffer:
    """Checks the decompressed records of a batch whose header is known to be right, and returns them. Raises `WireError` for faulty
    records, `TooManySteps` if they have more than `steps_max` headers, and `RecordsRefused` for records without a key if
    `is_key_required` (for compacted topics).
    """
    section = _indexable(section)
    try:
        _walk_records(section, header, is_key_required, steps_max)
    except IndexError:
        raise WireError("a record ends behind the end of its batch") from None
    return section


def check_record_sizes(section: Buffer, record_count: int, bytes_max: int) -> None:
    """Raises `WireError` for a decompressed record of more than `bytes_max` bytes. The bytes of the length field are not included."""
    data, position = _indexable(section), 0
    try:
        for index in range(record_count):
            number, position = read_zigzag(data, position)
            if number & 1 or number >> 1 > bytes_max:
                raise WireError(f"record {index} has more than {bytes_max} bytes (max.decompressed.message.bytes)")
            position += number >> 1
    except IndexError:
        raise WireError("a record ends behind the end of its batch") from None


def _indexable(section: Buffer) -> Buffer:
    """Copies a memoryview into bytes: an index into a memoryview takes twice as long, and the copy takes little."""
    return bytes(section) if isinstance(section, memoryview) else section


def read_zigzag(data: Buffer, position: int, bits: int = 32) -> tuple[int, int]:
    """Returns two numbers: the value of the varint, which is still zigzag-encoded, and the position after it. Raises `WireError` for more
    than `bits` bits."""
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


def _walk_records(data: Buffer, header: BatchHeader, is_key_required: bool, fields_left: int) -> None:
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
    if header.base_timestamp + min_delta < _INT64_MIN or header.base_timestamp + max_delta > _INT64_MAX:
        raise WireError("a timestamp is beyond 64 bits")


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
        # A header takes at least two bytes, and `number`, still zigzag-encoded, is twice the count.
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
