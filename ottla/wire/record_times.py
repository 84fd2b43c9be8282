"""The timestamps and offsets of a batch's records, and nothing else of them: keys, values and headers are stepped over by their length.

So a record with a million headers costs as much as one with none. Left out: whether the rest of a record is sound (`record_validation.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.errors import WireError
from ottla.wire.batch_header import TIMESTAMP_TYPE_BIT, Buffer, read_batch_header, record_section
from ottla.wire.record_validation import read_zigzag

INT64_MAX = (1 << 63) - 1


def record_times(batch: Buffer, *, decompressed_bytes_max: int) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record. Under log append time all records have the batch's timestamp. Raises `WireError`."""
    header = read_batch_header(batch)
    data = bytes(record_section(batch, header, decompressed_bytes_max))
    data_end, position, base_offset, base_timestamp = len(data), 0, header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    try:
        for _ in range(header.record_count):
            number = data[position]
            if number < 128:
                position += 1
            else:
                number, position = read_zigzag(data, position)
            end = position + (number >> 1)
            if number & 1 or end > data_end:
                raise WireError("a record is longer than its batch")
            number = data[position + 1]
            if number < 128:
                position += 2
            else:
                number, position = read_zigzag(data, position + 1, 64)
            timestamp = base_timestamp + (number >> 1 ^ -(number & 1))
            number = data[position]
            if number < 128:
                position += 1
            else:
                number, position = read_zigzag(data, position)
            if position > end:
                raise WireError("a record is not as long as it says")
            if timestamp > INT64_MAX:
                raise WireError(f"a record of the time {timestamp}")
            yield timestamp if append_time is None else append_time, base_offset + (number >> 1 ^ -(number & 1))
            position = end
    except IndexError:
        raise WireError("a record ends behind the end of its batch") from None
