"""The two sparse indexes: Kafka's bytes, look-ups against a plain list, and what is refused (I6)."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.index import NO_ENTRY, OffsetIndex, TimeIndex, read_last_time
from tests.fakes.disk import MemDisk
from tests.storage.log_builder import ROOT

PATH = f"{ROOT}/00000000000000000000.index"


def increasing(maximum: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, maximum), unique=True, max_size=30).map(sorted)


def test_the_bytes_are_kafkas() -> None:
    index, times = OffsetIndex(PATH), TimeIndex(PATH)
    index.append(7, 4100)
    index.append(1 << 30, (1 << 31) - 1)
    times.maybe_append(1_700_000_000_000, 7)
    times.maybe_append(1_700_000_000_000, 9)
    times.maybe_append(1_700_000_000_001, 11)
    assert index.encode() == pack(">iiii", 7, 4100, 1 << 30, (1 << 31) - 1)
    assert times.encode() == pack(">qiqi", 1_700_000_000_000, 7, 1_700_000_000_001, 11)


@given(offsets=increasing(1 << 31 - 1), wanted=st.integers(0, 1 << 31))
def test_lookup_finds_the_last_entry_that_is_not_beyond(offsets: list[int], wanted: int) -> None:
    index = OffsetIndex(PATH)
    for number, offset in enumerate(offsets):
        index.append(offset, (number + 1) * 100)
    expected = max(((offset, (number + 1) * 100) for number, offset in enumerate(offsets) if offset <= wanted), default=NO_ENTRY)
    assert index.lookup(wanted) == expected


@given(timestamps=increasing(1 << 50), wanted=st.integers(0, 1 << 50))
def test_time_lookup_names_an_offset_before_which_all_is_older(timestamps: list[int], wanted: int) -> None:
    times = TimeIndex(PATH)
    for number, timestamp in enumerate(timestamps):
        times.maybe_append(timestamp, number)
    assert times.lookup(wanted) == max((number for number, timestamp in enumerate(timestamps) if timestamp <= wanted), default=0)


@given(offsets=increasing(10_000), cuts=st.lists(st.integers(0, 30), max_size=4))
def test_written_in_runs_the_file_is_what_memory_holds(offsets: list[int], cuts: list[int]) -> None:
    disk = MemDisk(ROOT)
    index, times = OffsetIndex(PATH), TimeIndex(PATH + "t")
    for number, offset in enumerate(offsets):
        index.append(offset, offset * 3)
        times.maybe_append(offset * 5, offset)
        if number in cuts:
            index.write(disk)
            times.write(disk)
            index.keep(number // 2)
            times.keep(times.count_below(offset // 2))
    index.write(disk)
    times.write(disk)
    again, times_again = OffsetIndex(PATH), TimeIndex(PATH + "t")
    assert again.load(disk, 40_000) == "" and times_again.load(disk, 20_000) == ""
    assert (again.offsets, again.positions) == (index.offsets, index.positions)
    assert (times_again.timestamps, times_again.offsets) == (times.timestamps, times.offsets)
    assert disk.read_file(PATH) == index.encode()
    assert read_last_time(disk, PATH + "t") == (times.last if times else None)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1234567", "not a multiple"),
        (pack(">iiii", 5, 100, 5, 200), "out of order"),
        (pack(">iiii", 5, 100, 6, 100), "out of order"),
        (pack(">ii", 5, 1000), "outside"),
        (pack(">ii", -1, 100), "outside"),
        (pack(">ii", 0, 0), "outside"),
    ],
)
def test_a_damaged_offset_index_is_refused_and_left_empty(data: bytes, problem: str) -> None:
    disk = MemDisk(ROOT)
    disk.write_file(PATH, data)
    index = OffsetIndex(PATH)
    assert problem in index.load(disk, 1000)
    assert len(index) == 0


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1234567", "not a multiple"),
        (pack(">qiqi", 5, 1, 5, 2), "out of order"),
        (pack(">qiqi", 5, 3, 6, 2), "out of order"),
        (pack(">qi", 5, 100), "outside"),
        (pack(">qi", 5, -1), "outside"),
    ],
)
def test_a_damaged_time_index_is_refused_and_left_empty(data: bytes, problem: str) -> None:
    disk = MemDisk(ROOT)
    disk.write_file(PATH, data)
    times = TimeIndex(PATH)
    assert problem in times.load(disk, 100)
    assert len(times) == 0 and times.last == (-1, 0)


def test_a_missing_file_says_so() -> None:
    disk = MemDisk(ROOT)
    assert OffsetIndex(PATH).load(disk, 1) == TimeIndex(PATH).load(disk, 1) == "is missing"
    assert read_last_time(disk, PATH) is None
