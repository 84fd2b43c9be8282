"""Reads the timestamps and offsets of a batch's records. Keys, values and headers are skipped by the length of the record.

A record with a million headers therefore costs as much as a record without headers. `record_times` yields timestamp and offset of every
record. `time_range` finds only the smallest and the largest timestamp. It must be fast, because the broker calls it for most uncompressed
batches that clients send:

- Records of the same length follow each other at equal distances, so their timestamps are a slice with a step: 2 to 10 ns a record.
- Small records of mixed lengths are read in chunks if the largest timestamp in the header is correct: about 80 ns a record
  (`record_chunks.py`).
- All other records are read one by one: 100 to 200 ns a record.

The rest of a record is not checked (`record_validation.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import compress, repeat
from struct import Struct
from sys import byteorder
from typing import NamedTuple

from ottla.base.errors import WireError
from ottla.wire.batch_header import CODEC_MASK, RECORDS_AT, TIMESTAMP_TYPE_BIT, BatchHeader, Buffer, record_section
from ottla.wire.record_chunks import CHUNK_RECORDS, DELTA_MAX, RECORD_BYTES_MAX, chunk_matcher
from ottla.wire.record_validation import read_zigzag

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
_FEW_RECORDS = 64
"""The records of a batch with fewer records are read one by one, because the search for runs and chunks takes as long."""
_RUN_MIN = 8
"""Minimum number of records of equal length that are read by a slice."""
_WALKED_MIN = CHUNK_RECORDS
"""Number of records that are read one by one after a failed search for a run. It doubles after each further failure."""

_COPIED_BYTES_MAX = 500
"""Records that are larger on average are read without a copy of the batch."""
_BODY_MIN = 6
"""Minimum bytes of a record after its length: one each for attributes, timestamp, offset, key, value and headers."""
_ALL_BYTES = bytes(range(256))
_EVEN_BYTES = bytes(range(0, 256, 2))
_NOWHERE = 1 << 62
"""The distance to the next record if a length is negative: it ends beyond any batch, so the caller finds the error."""
_STRIDES = tuple([_NOWHERE if number & 1 else 1 + (number >> 1) for number in range(128)])
"""The distance to the next record, by a length of one byte."""
_LONG_STRIDES = tuple([_NOWHERE if number & 1 else 2 + ((number & 127) >> 1) for number in range(256)])
"""The distance to the next record, by the first byte of a length of two bytes. The second byte adds 64 times its value."""
_read_start = Struct(">I").unpack_from
"""Reads the first four bytes of a record: length (one byte or two), attributes, timestamp delta."""
_new_tuple = tuple.__new__


class TimeRange(NamedTuple):
    """The smallest and the largest timestamp of the records of a batch. The smallest ignores records without a timestamp (-1), unless no
    record has one."""

    smallest: int
    largest: int


def record_times(header: BatchHeader, section: Buffer) -> Iterator[tuple[int, int]]:
    """Yields (timestamp, offset) of each of a batch's decompressed records. With log append time, all records have the batch's timestamp.
    Raises `WireError` if the records cannot be read.
    """
    data = bytes(section)
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


def time_range(section: Buffer, base_timestamp: int, record_count: int, *, claimed_max: int = -1) -> TimeRange:
    """Returns the range of the timestamps of the decompressed records of a batch. Raises `WireError` if the records' lengths do not add up
    to the section's, or a timestamp is beyond 64 bits. `claimed_max` is the largest timestamp in the header. It does not change the result,
    but records of mixed lengths are read faster if it is true.
    """
    # A slice with a step is several times as fast on bytes as on a memoryview, but a copy of large records costs more than the slices.
    data = section if len(section) > _COPIED_BYTES_MAX * record_count else bytes(section)
    try:
        position, lowest, highest = _take_all(data, record_count, -1 - base_timestamp, claimed_max - base_timestamp)
    except IndexError:
        raise WireError("a record ends behind the end of its batch") from None
    if position != len(data):
        raise WireError(f"{len(data) - position} bytes are left behind the last record")
    lowest = min(lowest, highest)  # no record has a timestamp
    if base_timestamp + lowest < INT64_MIN or base_timestamp + highest > INT64_MAX:
        raise WireError("a timestamp is beyond 64 bits")
    return _new_tuple(TimeRange, (base_timestamp + lowest, base_timestamp + highest))


def _take_all(data: Buffer, count: int, absent: int, claimed: int) -> tuple[int, int, int]:
    """Returns (end of the last record, smallest timestamp delta, largest). `absent` is the delta of a record without a timestamp, which the
    smallest ignores. `claimed` is the largest delta by the header.
    """
    if count < _FEW_RECORDS:
        return _take_each(data, 0, count, absent)
    chunks: list[int] = []
    has_chunks = 0 <= claimed <= DELTA_MAX and len(data) <= count * RECORD_BYTES_MAX
    position, lowest, highest = _take_each(data, 0, 1, absent)
    left, walked = count - 1, _WALKED_MIN
    while left:
        run = _run_length(data, position, left)
        taken = _take_run(data, position, run, absent) if run >= _RUN_MIN else None
        if taken is not None:
            walked = _WALKED_MIN
        else:
            run, skipped = min(left, walked), 0
            walked *= 2
            if has_chunks and left > CHUNK_RECORDS:  # the last record is not skipped: it often has the largest timestamp
                position, skipped = _skip_chunks(data, position, min(run, left - 1), claimed, chunks)
            taken = _take_each(data, position, run - skipped, absent)
        position, low, high = taken
        left -= run
        lowest, highest = low if low < lowest else lowest, high if high > highest else highest
    # All deltas in chunks are in [0, claimed]. Records outside of the chunks with both extremes prove the range.
    while chunks and (lowest > 0 or highest < claimed):
        _, low, high = _take_each(data, chunks.pop(), CHUNK_RECORDS, absent)
        lowest, highest = min(low, lowest), max(high, highest)
    return position, lowest, highest


def _skip_chunks(data: Buffer, position: int, count: int, delta_max: int, chunks: list[int]) -> tuple[int, int]:
    """Skips chunks of at most `count` records in total, and adds their positions to `chunks`. Returns the position after them, and their
    number of records.
    """
    match, skipped = chunk_matcher(delta_max), 0
    while count - skipped >= CHUNK_RECORDS and (found := match(data, position)) is not None:
        chunks.append(position)
        position = found.end()
        skipped += CHUNK_RECORDS
    return position, skipped


def is_single_as_claimed(batch: memoryview, header: BatchHeader) -> bool:
    """Whether an uncompressed batch is one record that ends with the batch, and both the record's and the largest timestamp are the base
    timestamp. False also for records of 8 KiB and more, and for records with attributes.
    """
    return header[7] == header[8] and not header[5] & CODEC_MASK and _read_start(batch, RECORDS_AT)[0] == _single_start(len(batch))


@lru_cache(maxsize=512)
def _single_start(size: int) -> int:
    """Returns the first four bytes, as a number, of the record that fills a batch of this size and has its base timestamp. Returns -1 if
    the length takes three bytes, so that four do not include the timestamp.
    """
    length = size - RECORDS_AT - 1
    if length < 64:
        return length << 25
    length -= 1
    return (length << 1 & 127 | 128) << 24 | length >> 6 << 16 if length < 8_192 else -1


def largest_time(header: BatchHeader, batch: Buffer, decompressed_bytes_max: int) -> int:
    """Returns the largest timestamp of a stored batch: the header's, or the records' if the header's cannot be true. Returns the first
    record's timestamp if the records cannot be read."""
    if header.is_largest_time_credible:
        return header.max_timestamp
    try:
        return time_range(record_section(batch, header, decompressed_bytes_max), header.base_timestamp, header.record_count).largest
    except WireError:
        return header.base_timestamp


def _stride(data: Buffer, position: int) -> tuple[int, int]:
    """Returns (bytes of the length at `position`, distance to the next record)."""
    number, after = read_zigzag(data, position)
    prefix = after - position
    return prefix, prefix + (number >> 1)


def _run_length(data: Buffer, position: int, count_max: int) -> int:
    """Returns how many records from `position` on certainly have the same length, and thus lie at equal distances. Returns 0 if the record
    `_RUN_MIN` - 1 distances ahead has another length, or the length is impossible.
    """
    prefix, stride = _stride(data, position)
    if data[position] & 1 or stride < prefix + _BODY_MIN:
        return 0
    probe = position + stride * (_RUN_MIN - 1)
    if data[probe : probe + prefix] != data[position : position + prefix]:
        return 0
    run = min(count_max, (len(data) - position) // stride)
    for at in range(position, position + prefix):
        heads = data[at : position + run * stride : stride]
        if heads[1:] != heads[:-1]:  # on a memoryview this comparison is several times as fast as a copy
            heads = bytes(heads)
            run = len(heads) - len(heads.lstrip(heads[:1]))
    return run


def _take_run(data: Buffer, position: int, run: int, absent: int) -> tuple[int, int, int] | None:
    """Returns (end, smallest timestamp delta, largest) of `run` records at equal distances. Returns None unless all deltas take one byte,
    or all take two.
    """
    prefix, stride = _stride(data, position)
    end = position + run * stride
    first = bytes(data[position + prefix + 1 : end : stride])
    lows = _distinct(first)
    numbers: Iterable[int] = lows
    if lows[-1] > 127:
        second = bytes(data[position + prefix + 2 : end : stride])
        highs = _distinct(second)
        if lows[0] < 128 or highs[-1] > 127:
            return None
        if not first.translate(None, _EVEN_BYTES) and absent < 0:  # no delta is negative
            return end, _extreme(min, highs[0], first, second), _extreme(max, highs[-1], first, second)
        both = bytearray(2 * run)
        both[0::2], both[1::2] = first, second
        pairs = set(array("H", both))
        low_at, high_at = (0, 8) if byteorder == "little" else (8, 0)
        numbers = {(pair >> low_at & 127) | (pair >> high_at & 127) << 7 for pair in sorted(pairs)}
    deltas = [number >> 1 ^ -(number & 1) for number in numbers]
    return end, min((delta for delta in deltas if delta != absent), default=1 << 64), max(deltas)


def _distinct(data: bytes) -> bytes:
    """Returns the different bytes of `data`, in ascending order."""
    return _ALL_BYTES.translate(None, _ALL_BYTES.translate(None, data))


def _extreme(choose: Callable[[Iterable[int]], int], high: int, first: bytes, second: bytes) -> int:
    """Returns the smallest or the largest of positive deltas of two bytes. The second byte is the higher one; `high` is its extreme."""
    start, end = second.find(high), second.rfind(high) + 1
    is_run = second.count(high) == end - start  # Producers usually send records in the order of their timestamps.
    low = choose(first[start:end] if is_run else compress(first, [byte == high for byte in second]))
    return ((low & 127) + (high << 7)) >> 1


def _take_each(data: Buffer, position: int, count: int, absent: int) -> tuple[int, int, int]:
    """Returns (end, smallest timestamp delta, largest) of `count` records, which are read one by one. The caller checks that the last
    record ends where the section ends.
    """
    lowest, highest, before, strides, long_strides = 1 << 64, -(1 << 64), -1, _STRIDES, _LONG_STRIDES
    for _ in repeat(None, count):
        number = data[position]
        if number < 128:
            at = position + 2
            position += strides[number]
        elif (high := data[position + 1]) < 128:
            at = position + 3
            position += long_strides[number] + (high << 6)
        else:
            number, at = read_zigzag(data, position)
            position = at + (_NOWHERE if number & 1 else number >> 1)
            at += 1
        time = data[at]
        if time != before:
            before = time
            if time > 127:
                before = -1
                if (high := data[at + 1]) < 128:
                    time += (high << 7) - 128
                else:
                    time, _ = read_zigzag(data, at, 64)
            delta = time >> 1 ^ -(time & 1)
            lowest = delta if delta < lowest and delta != absent else lowest
            highest = delta if delta > highest else highest
    return position, lowest, highest
