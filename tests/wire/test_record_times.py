"""The range of the timestamps of a batch against a plain look at every record, and against bytes that are no records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import WireError
from ottla.wire.batch_header import RECORDS_AT, read_batch_header
from ottla.wire.record_times import INT64_MAX, TimeRange, time_range
from ottla.wire.records import Record, encode_batch

NOW = 1_700_000_000_000
STEPS = st.sampled_from([0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, -8_193, 1 << 30, -NOW - 1])


def range_of(times: list[int], sizes: list[int]) -> TimeRange:
    records = [Record(0, time, b"k", b"v" * size) for time, size in zip(times, sizes, strict=True)]
    batch = encode_batch(records)
    header = read_batch_header(batch)
    return time_range(memoryview(batch)[RECORDS_AT:], header.base_timestamp, header.record_count)


@given(st.lists(st.tuples(STEPS, st.sampled_from([0, 5, 5, 5, 60, 9_000])), min_size=1, max_size=60), st.integers(1, 40))
def test_as_every_record_says(parts: list[tuple[int, int]], repeats: int) -> None:
    """Runs of records of one length, between records of other lengths, with timestamps of one to six bytes."""
    times = [NOW + step for step, _ in parts for _ in range(repeats)]
    sizes = [size for _, size in parts for _ in range(repeats)]
    timed = [time for time in times if time != -1]
    assert range_of(times, sizes) == (min(timed, default=-1), max(times))


@pytest.mark.parametrize("count", [1, 7, 8, 64, 65, 8_193])
def test_rising_and_falling_times_of_equal_records(count: int) -> None:
    rising = list(range(NOW, NOW + count))
    assert range_of(rising, [10] * count) == (NOW, NOW + count - 1)
    assert range_of(rising[::-1], [200] * count) == (NOW, NOW + count - 1)
    assert range_of([NOW, *[NOW + 7] * (count - 1)], [0] * count).largest == (NOW + 7 if count > 1 else NOW)


def test_records_without_a_timestamp_are_not_the_oldest() -> None:
    assert range_of([-1, -1], [1, 1]) == (-1, -1)
    assert range_of([-1, NOW] * 20, [1] * 40) == (NOW, NOW)
    assert range_of([NOW, -1] * 20, [1] * 40) == (NOW, NOW)


@given(st.binary(max_size=300), st.integers(1, 40), st.integers(-1, INT64_MAX))
def test_any_bytes_are_a_range_or_an_error(data: bytes, count: int, base: int) -> None:
    try:
        found = time_range(data, base, count)
    except WireError:
        return
    assert found.smallest <= found.largest


@given(st.integers(1, 40), st.data())
def test_cut_off_anywhere(count: int, data: st.DataObject) -> None:
    batch = encode_batch([Record(0, NOW, b"k", b"value")] * count)
    cut = data.draw(st.integers(0, len(batch) - RECORDS_AT - 1))
    with pytest.raises(WireError):
        time_range(memoryview(batch)[RECORDS_AT : RECORDS_AT + cut], NOW, count)


def test_a_timestamp_beyond_64_bits() -> None:
    batch = encode_batch([Record(0, 10, None, b""), Record(1, 11, None, b"")])
    with pytest.raises(WireError):
        time_range(memoryview(batch)[RECORDS_AT:], INT64_MAX, 2)
