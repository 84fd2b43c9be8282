"""The range of the timestamps in a batch: compared with a simple loop over every record, and tried on bytes that are no records."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import WireError
from ottla.wire import record_chunks
from ottla.wire.batch_header import RECORDS_AT, read_batch_header
from ottla.wire.record_times import INT64_MAX, TimeRange, is_single_as_claimed, time_range
from ottla.wire.record_validation import read_zigzag
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


def test_large_records_are_read_without_a_pattern() -> None:
    """A pattern would take milliseconds to compile, and would match none of these records: lengths of 8,192 bytes and more take three
    bytes."""
    record_chunks._matcher.cache_clear()
    times = [NOW, *range(NOW, NOW + 38), NOW + 40, *range(NOW, NOW + 40)]
    for sizes in ([10_000] * 80, [8_000 + 10 * number for number in range(80)], [300 + number for number in range(80)]):
        batch = encode_batch([Record(0, time, b"k", b"v" * size) for time, size in zip(times, sizes, strict=True)])
        assert time_range(memoryview(batch)[RECORDS_AT:], NOW, 80, claimed_max=NOW + 40) == (NOW, NOW + 40)
    assert record_chunks._matcher.cache_info().currsize == 0


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


# Records of mixed lengths, which are skipped in chunks if the header's largest timestamp is true


def plain_look(data: bytes, base: int, count: int) -> TimeRange | None:
    """Reads each record by itself. Returns None if the lengths of the records do not add up."""
    position, times = 0, []
    try:
        for _ in range(count):
            length, position = read_zigzag(data, position)
            delta, _ = read_zigzag(data, position + 1, 64)
            if length & 1:
                return None
            times.append(base + (delta >> 1 ^ -(delta & 1)))
            position += length >> 1
    except (WireError, IndexError):
        return None
    if position != len(data) or min(times) < -(1 << 63) or max(times) > INT64_MAX:
        return None
    return TimeRange(min([time for time in times if time != -1], default=-1), max(times))


def look(data: bytes, base: int, count: int, claimed_max: int) -> TimeRange | None:
    try:
        return time_range(data, base, count, claimed_max=claimed_max)
    except WireError:
        return None


def sized_records(times: Sequence[int], *, seed: int, sizes: tuple[int, int] = (50, 150)) -> bytes:
    """Returns records with these timestamps and random sizes, as in a batch without compression."""
    random = Random(seed)
    records = [Record(0, time, None, random.randbytes(random.randint(*sizes))) for time in times]
    return bytes(encode_batch(records)[RECORDS_AT:])


def random_times(seed: int, count: int, delta_max: int, *, is_sorted: bool) -> list[int]:
    random = Random(seed)
    deltas = [0, *[random.randint(0, delta_max) for _ in range(count - 1)]]
    return [NOW + delta for delta in (sorted(deltas) if is_sorted else deltas)]


def position_of(data: bytes | bytearray, number: int) -> int:
    position = 0
    for _ in range(number):
        length, position = read_zigzag(data, position)
        position += length >> 1
    return position


@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([64, 65, 90, 150, 300]) | st.integers(1, 300),
    sizes=st.sampled_from([(0, 60), (40, 150), (40, 150), (100, 300), (0, 9_000)]),
    delta_max=st.sampled_from([0, 1, 2, 5, 63, 64, 9_000]),
    claim_off_by=st.sampled_from([0, 0, 0, 1, -1, 60, -NOW - 1]),
    base=st.sampled_from([NOW, NOW, 0, -1, -2, -30, INT64_MAX - 5]),
    damage=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=2),
    count_off_by=st.sampled_from([0, 0, 0, 1, -1, 24, -24]),
    is_sorted=st.booleans(),
)
def test_a_claim_changes_no_result(
    seed: int,
    count: int,
    sizes: tuple[int, int],
    delta_max: int,
    claim_off_by: int,
    base: int,
    damage: list[tuple[int, int]],
    count_off_by: int,
    is_sorted: bool,
) -> None:
    """For valid and damaged records, and for true and false headers, the result is that of the simple loop."""
    data = bytearray(sized_records(random_times(seed, count, delta_max, is_sorted=is_sorted), seed=seed, sizes=sizes))
    for position, byte in damage:
        data[position % len(data)] = byte
    said = max(count + count_off_by, 1)
    expected = plain_look(bytes(data), base, said)
    claimed = (base + delta_max if expected is None else expected.largest) + claim_off_by
    assert look(bytes(data), base, said, claimed) == expected


@pytest.mark.parametrize("number", [0, 1, 30, 70, 150, 198, 199])
@pytest.mark.parametrize("delta", [4, 6, 63, 64, -1, -NOW - 1])
@pytest.mark.parametrize("usual", [0, 3, 5])
def test_one_record_of_another_time_is_found_wherever_it_is(number: int, delta: int, usual: int) -> None:
    """The header states a largest timestamp that is 5 ms after the base timestamp."""
    times = [NOW, *[NOW + usual] * 199]
    times[number] = NOW + delta
    base, data = times[0], sized_records(times, seed=number)
    assert time_range(data, base, 200, claimed_max=base + 5) == (min(time for time in times if time != -1), max(times))


def test_the_oldest_record_is_not_the_first() -> None:
    """A producer's base timestamp need not be that of the first record."""
    data = bytearray(sized_records([NOW, NOW + 4, NOW + 1, *[NOW + 4] * 100, NOW + 5], seed=3, sizes=(60, 120)))
    data[3] = 8  # a delta of 4
    assert time_range(bytes(data), NOW, 104, claimed_max=NOW + 5) == (NOW + 1, NOW + 5)


@pytest.mark.parametrize("base", [-1, -3])
def test_records_without_a_timestamp_among_records_of_mixed_lengths(base: int) -> None:
    times = [base, *[base + 1, -1, base + 5] * 50]
    assert time_range(sized_records(times, seed=1), base, len(times), claimed_max=base + 5) == (-3 if base == -3 else 0, base + 5)


@pytest.mark.parametrize("number", [0, 1, 50, 99])
@pytest.mark.parametrize("size", [20, 100, 9_000])
def test_a_negative_length(number: int, size: int) -> None:
    data = bytearray(sized_records([NOW] * 100, seed=2, sizes=(size, size + 40)))
    data[position_of(data, number)] |= 1
    with pytest.raises(WireError):
        time_range(data, NOW, 100, claimed_max=NOW)


@pytest.mark.parametrize("size", [20, 100])
def test_a_single_record_that_is_not_the_rest_of_its_batch(size: int) -> None:
    batch = encode_batch([Record(0, NOW, None, b"v" * size)])
    header = read_batch_header(batch)
    assert is_single_as_claimed(memoryview(batch), header)
    assert not is_single_as_claimed(memoryview(batch)[:-1], header)
    assert not is_single_as_claimed(memoryview(batch + b"x"), header)


@given(
    size=st.sampled_from([0, 1, 50, 55, 56, 57, 58, 59, 300, 8_180, 8_183, 8_184, 8_185, 9_000]),
    delta=st.sampled_from([0, 0, 1, -1, 64]),
    claim=st.sampled_from([0, 0, 1, -1]),
    damage=st.none() | st.tuples(st.integers(0, 5), st.integers(0, 255)),
)
def test_a_single_record_is_as_claimed_only_if_a_look_says_so(size: int, delta: int, claim: int, damage: tuple[int, int] | None) -> None:
    batch = encode_batch([Record(0, NOW, None, b"v" * size)])
    if damage is not None:
        batch[RECORDS_AT + damage[0] % (len(batch) - RECORDS_AT)] = damage[1]
    header = read_batch_header(batch)._replace(base_timestamp=NOW - delta, max_timestamp=NOW + claim)
    expected = plain_look(bytes(batch[RECORDS_AT:]), header.base_timestamp, 1)
    if is_single_as_claimed(memoryview(batch), header):
        assert expected == (header.max_timestamp, header.max_timestamp)
    elif damage is None and size < 8_000:
        assert delta or claim


@pytest.mark.parametrize("sizes", [(700, 700), (500, 900)])
def test_large_records_are_read_in_place(sizes: tuple[int, int]) -> None:
    """`time_range` does not copy a batch of large records: the result is the same."""
    random = Random(9)
    times = [NOW + number // 3 + random.randrange(0, 200) for number in range(300)]
    data = sized_records(times, seed=3, sizes=sizes)
    for section in (memoryview(data), data, bytearray(data)):
        assert time_range(section, times[0], len(times), claimed_max=max(times)) == (min(times), max(times))
