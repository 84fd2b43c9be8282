"""The timestamps and offsets of a batch's records. Keys, values and headers are skipped by their length.

A record with a million headers therefore costs as much as a record without headers. `record_times` yields every record; `time_range` finds
only the smallest and the largest timestamp, and is fast, because every uncompressed batch that a client sends passes it. Records of the
same length follow each other at equal distances, so their timestamps are a slice with a step, which costs 2 to 10 ns a record instead of
100 to 200 ns. Left out: whether the rest of a record is sound (`record_validation.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, repeat
from sys import byteorder
from typing import NamedTuple

from ottla.base.errors import WireError
from ottla.wire.batch_header import TIMESTAMP_TYPE_BIT, BatchHeader, Buffer, read_batch_header, record_section
from ottla.wire.record_validation import read_zigzag

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
_RUN_MIN = 8
"""Records of equal length that are worth a slice."""
_WALKED_MIN = 16
"""Records that are walked one by one after a search for a run has failed; twice as many after each further failure."""

_BODY_MIN = 6
"""Bytes of a record behind its length: attributes, timestamp, offset, key, value, headers."""
_EVEN_BYTES = bytes(range(0, 256, 2))
_new_tuple = tuple.__new__


class TimeRange(NamedTuple):
    """The smallest and the largest timestamp of the records of a batch. Records without a timestamp (-1) do not count for the smallest."""

    smallest: int
    largest: int


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


def time_range(section: Buffer, base_timestamp: int, record_count: int) -> TimeRange:
    """The range of the timestamps of the unpacked records of a batch. Raises `WireError` if their lengths do not add up."""
    data = bytes(section)  # a slice with a step of bytes is several times as fast as one of a memoryview
    position, left, walked, absent = 0, record_count, _WALKED_MIN, -1 - base_timestamp
    lowest, highest = 1 << 64, -(1 << 64)
    try:
        if left < _RUN_MIN:
            position, lowest, highest = _take_each(data, 0, left, absent)
            left = 0
        while left:
            run = _run_length(data, position, left)
            taken = _take_run(data, position, run, absent) if run >= _RUN_MIN else None
            if taken is None:
                run = min(left, walked)
                walked *= 2
                taken = _take_each(data, position, run, absent)
            else:
                walked = _WALKED_MIN
            position, low, high = taken
            left -= run
            lowest, highest = low if low < lowest else lowest, high if high > highest else highest
    except IndexError:
        raise WireError("a record ends behind the end of its batch") from None
    if position != len(data):
        raise WireError(f"{len(data) - position} bytes are left behind the last record")
    lowest = min(lowest, highest)  # no record has a timestamp
    if base_timestamp + lowest < INT64_MIN or base_timestamp + highest > INT64_MAX:
        raise WireError("a timestamp is beyond 64 bits")
    return _new_tuple(TimeRange, (base_timestamp + lowest, base_timestamp + highest))


def largest_time(header: BatchHeader, batch: Buffer, decompressed_bytes_max: int) -> int:
    """The largest timestamp in a stored batch: as its header says, or by its records where the header cannot be true. An unreadable batch
    counts by its first record."""
    if header.is_largest_time_credible:
        return header.max_timestamp
    try:
        return time_range(record_section(batch, header, decompressed_bytes_max), header.base_timestamp, header.record_count).largest
    except WireError:
        return header.base_timestamp


def _stride(data: bytes, position: int) -> tuple[int, int]:
    """The bytes of the length here, and the distance to the next record; zeros where the length takes three bytes or more."""
    number = data[position]
    if number < 128:
        return 1, 1 + (number >> 1)
    high = data[position + 1]
    return (2, 2 + ((number + (high << 7) - 128) >> 1)) if high < 128 else (0, 0)


def _run_length(data: bytes, position: int, count_max: int) -> int:
    """How many records from here on certainly begin with the same length, and so lie at equal distances; 0 where few seem to."""
    prefix, stride = _stride(data, position)
    if not prefix or data[position] & 1 or stride < prefix + _BODY_MIN:
        return 0
    probe = position + stride * (_RUN_MIN - 1)
    if data[probe : probe + prefix] != data[position : position + prefix]:
        return 0
    run = min(count_max, (len(data) - position) // stride)
    for at in range(position, position + prefix):
        heads = data[at : position + run * stride : stride]
        run = len(heads) - len(heads.lstrip(heads[:1]))
    return run


def _take_run(data: bytes, position: int, run: int, absent: int) -> tuple[int, int, int] | None:
    """Where so many records at equal distances end, and the range of their timestamp deltas. None where not all of these take one byte, or
    not all take two. `absent` is the delta of a record without a timestamp, which does not count for the smallest."""
    prefix, stride = _stride(data, position)
    end = position + run * stride
    first = data[position + prefix + 1 : end : stride]
    numbers = set(first)
    if max(numbers) > 127:
        second = data[position + prefix + 2 : end : stride]
        if min(numbers) < 128 or max(second) > 127:
            return None
        if not first.translate(None, _EVEN_BYTES) and absent < 0:  # no delta is negative
            return end, _extreme(min, first, second), _extreme(max, first, second)
        both = bytearray(2 * run)
        both[0::2], both[1::2] = first, second
        pairs = set(array("H", both))
        low_at, high_at = (0, 8) if byteorder == "little" else (8, 0)
        numbers = {(pair >> low_at & 127) | (pair >> high_at & 127) << 7 for pair in sorted(pairs)}
    deltas = [number >> 1 ^ -(number & 1) for number in sorted(numbers)]
    return end, min((delta for delta in deltas if delta != absent), default=1 << 64), max(deltas)


def _extreme(choose: Callable[[Iterable[int]], int], first: bytes, second: bytes) -> int:
    """The smallest or the largest of positive deltas of two bytes. The second byte is the higher one."""
    high = choose(second)
    only = bytearray(256)
    only[high] = 1
    low = choose(compress(first, second.translate(only)))
    return ((low & 127) + (high << 7)) >> 1


def _take_each(data: bytes, position: int, count: int, absent: int) -> tuple[int, int, int]:
    """The same, for records that are walked one by one. Lengths are added up; the caller checks that the last record ends where it must."""
    lowest, highest, before = 1 << 64, -(1 << 64), -1
    for _ in repeat(None, count):
        number = data[position]
        if number < 128:
            position += 1
        elif (high := data[position + 1]) < 128:
            number += (high << 7) - 128
            position += 2
        else:
            number, position = read_zigzag(data, position)
        time = data[position + 1]
        if time != before:
            before = time
            if time > 127:
                time, before = _long_delta(data, position + 1), -1
            delta = time >> 1 ^ -(time & 1)
            lowest = delta if delta < lowest and delta != absent else lowest
            highest = delta if delta > highest else highest
        if number & 1:
            raise WireError("a record has a negative length")
        position += number >> 1
    return position, lowest, highest


def _long_delta(data: bytes, position: int) -> int:
    """A timestamp delta of two bytes or more, in its zigzag form."""
    high = data[position + 1]
    if high < 128:
        return data[position] + (high << 7) - 128
    return read_zigzag(data, position, 64)[0]
