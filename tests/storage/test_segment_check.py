"""Damage of every kind is found at its position, and the batches around it are not reported as damaged (P11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.errors import DamagedLogError
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.segment import Segment
from ottla.storage.segment_check import DamagedRange, SegmentCheck
from ottla.wire.batch_header import iter_batches
from tests.fakes.disk import MemDisk, MemFile
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import LogBuilder, batch_of

BATCHES = 150
SEGMENT_BYTES = 4_000


@pytest.fixture
def built() -> LogBuilder:
    """Returns a log of batches with one record each, some in sealed segments. The indexes have an entry for every second batch."""
    made = LogBuilder(log_settings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100))
    for _ in range(BATCHES):
        made.append(batch_of())
    made.log.flush()
    assert len(made.log.segments) > 1 and len(made.log.segments[0].index) > 10
    return made


def check(
    built: LogBuilder, segment: Segment, *, epochs: LeaderEpochs | None = None, may_end_early: bool = False, bytes_max: int = 1 << 20
) -> SegmentCheck:
    made = SegmentCheck(
        built.disk, segment.path(""), segment.base_offset, segment.end_offset, segment.size, epochs=epochs, may_end_early=may_end_early
    )
    while made.run(bytes_max):
        pass
    return made


def flip(built: LogBuilder, segment: Segment, offset: int, at: int) -> None:
    assert isinstance(built.disk, MemDisk)
    built.disk.flip_bits(segment.path(".log"), segment.position_of(offset) + at)


def spans(found: list[DamagedRange]) -> list[tuple[int, int]]:
    return [(each.first_offset, each.end_offset) for each in found]


@pytest.mark.parametrize("bytes_max", [1, 300, 1 << 20])
def test_a_sound_segment_is_checked_whole_in_pieces_of_any_size(built: LogBuilder, bytes_max: int) -> None:
    segment = built.log.segments[0]
    found = check(built, segment, bytes_max=bytes_max)
    assert (found.damaged, found.batches, found.bytes) == ([], segment.end_offset, segment.size)


def test_a_flipped_bit_in_the_records_costs_its_batch(built: LogBuilder) -> None:
    segment = built.log.segments[0]
    flip(built, segment, 7, 70)
    flip(built, segment, 20, 64)
    (first, second) = check(built, segment).damaged
    assert spans([first, second]) == [(7, 8), (20, 21)]
    assert (first.position, first.end_position) == (segment.position_of(7), segment.position_of(8))
    assert "offset 7" in first.reason and segment.path(".log") in first.reason


@pytest.mark.parametrize(
    "at", [pytest.param(10, id="length"), pytest.param(16, id="magic"), pytest.param(8, id="huge length"), pytest.param(5, id="offset")]
)
def test_a_damaged_head_costs_what_lies_before_the_next_entry_of_the_index(built: LogBuilder, at: int) -> None:
    segment = built.log.segments[0]
    flip(built, segment, 9, at)
    ((first, end),) = spans(check(built, segment).damaged)
    assert first == 9 and 10 <= end <= 12


def test_a_flipped_bit_of_a_head_that_no_crc_covers_is_found() -> None:
    """The bits of base offset, length and leader epoch are flipped. The damaged batch is within the reported range, whatever its neighbours
    are."""
    built = LogBuilder(log_settings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100))
    for number in range(BATCHES):
        built.append(batch_of(1 + number % 3), leader_epoch=number // 9)
    segment, disk = built.log.segments[0], built.disk
    assert isinstance(disk, MemDisk)
    path = segment.path(".log")
    for position, header in list(iter_batches(disk.read_file(path))):
        for bit in range(8 * 16):
            disk.flip_bits(path, position + bit // 8, 1 << bit % 8)
            found = spans(check(built, segment, epochs=built.log.epochs).damaged)
            assert any(first <= header.base_offset < end for first, end in found), f"bit {bit} of the batch at {header.base_offset}"
            disk.flip_bits(path, position + bit // 8, 1 << bit % 8)


def test_damage_at_both_ends_is_found(built: LogBuilder) -> None:
    segment = built.log.segments[0]
    flip(built, segment, 0, 16)
    flip(built, segment, segment.end_offset - 1, 70)
    first, last = spans(check(built, segment).damaged)
    assert first[0] == 0 and last == (segment.end_offset - 1, segment.end_offset)


def missing(built: LogBuilder, segment: Segment) -> int:
    built.disk.remove(segment.path(".log"))
    return 0


def emptied(built: LogBuilder, segment: Segment) -> int:
    built.disk.open(segment.path(".log")).truncate(0)
    return 0


def cut(built: LogBuilder, segment: Segment) -> int:
    built.disk.open(segment.path(".log")).truncate(segment.position_of(10) + 5)
    return 10


@pytest.mark.parametrize("damage", [missing, emptied, cut])
def test_what_is_not_there_is_damage(built: LogBuilder, damage: Callable[[LogBuilder, Segment], int]) -> None:
    segment = built.log.segments[0]
    first = damage(built, segment)
    segment.release_file()
    assert spans(check(built, segment).damaged) == [(first, segment.end_offset)]


def test_a_segment_that_is_followed_by_a_hole_is_damaged_unless_it_was_compacted(built: LogBuilder) -> None:
    first, second = built.log.segments[:2]
    args = built.disk, first.path(""), 0, second.end_offset, first.size
    whole = SegmentCheck(*args, may_end_early=True)
    assert not whole.run(1 << 20) and whole.damaged == []
    holed = SegmentCheck(*args, may_end_early=False)
    assert not holed.run(1 << 20) and spans(holed.damaged) == [(first.end_offset, second.end_offset)]


def test_damage_without_an_index_costs_the_rest(built: LogBuilder) -> None:
    segment = built.log.segments[0]
    flip(built, segment, 9, 10)
    built.disk.remove(segment.path(".index"))
    assert spans(check(built, segment).damaged) == [(9, segment.end_offset)]


def test_another_file_in_its_place_is_damage_from_the_beginning(built: LogBuilder) -> None:
    """A whole file was overwritten by a misdirected write."""
    first, second = built.log.segments[:2]
    content = second.file().pread(second.size, 0)
    built.disk.open(first.path(".log")).pwrite(content[: first.size], 0)
    assert spans(check(built, first).damaged) == [(0, first.end_offset)]


def test_a_file_that_ends_within_a_batch_is_damaged_there(built: LogBuilder) -> None:
    segment = built.log.segments[0]
    file = built.disk.open(segment.path(".log"))
    file.truncate(segment.position_of(5) + 65)
    file.close()
    (found,) = check(built, segment).damaged
    assert (found.first_offset, found.end_offset) == (5, segment.end_offset)


@pytest.mark.parametrize("bytes_max", [300, 1 << 20])
def test_bytes_that_cannot_be_read_cost_only_the_batches_in_their_pages(monkeypatch: pytest.MonkeyPatch, bytes_max: int) -> None:
    made = LogBuilder(log_settings(segment_bytes=60_000, index_interval_bytes=1_000))
    while len(made.log.segments) == 1:
        made.append(batch_of())
    made.log.flush()
    segment = made.log.segments[0]
    bad = range(20_480, 24_576)
    pread = MemFile.pread

    def refuses(file: MemFile, length: int, position: int) -> bytes:
        if file.path.endswith(".log") and max(position, bad.start) < min(position + length, bad.stop):
            raise DamagedLogError(f"cannot read {length} bytes at {position}", file.path)
        return pread(file, length, position)

    monkeypatch.setattr(MemFile, "pread", refuses)
    found = check(made, segment, bytes_max=bytes_max).damaged
    assert found and found[0].position > bad.start - 4_096 - 200 and found[-1].end_position < bad.stop + 2 * 1_000
