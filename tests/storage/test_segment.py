"""Segments: look-ups with and without the remembered tail, the limit on open files, indexes that are loaded on use, and when a segment is
rolled."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import DamagedLogError, StorageError
from ottla.storage import segment as segment_module
from ottla.storage.aborted import AbortedTransaction
from ottla.storage.open_files import OpenFiles
from ottla.storage.segment import Segment
from ottla.wire.batch_header import read_batch_header
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import ROOT, LogBuilder, batch_of


def segment_of(counts: list[int], *, interval: int = 150, disk: MemDisk | None = None, open_files: OpenFiles | None = None) -> Segment:
    """Returns a new segment with base offset 100 and batches of these numbers of records."""
    made = Segment(
        disk or MemDisk(ROOT),
        ROOT,
        100,
        config=log_settings(index_interval_bytes=interval),
        now_ms=0,
        open_files=open_files or OpenFiles(),
        notes=[],
    )
    made.open_file(create=True)
    offset = 100
    for count in counts:
        batch = batch_of(count, base_offset=offset, timestamp=offset)
        header = read_batch_header(batch)
        offset += count
        append(made, batch, offset - 1, header.max_timestamp)
    return made


def append(made: Segment, batch: bytearray, last_offset: int, timestamp: int) -> None:
    made.file().pwrite(batch, made.size)
    made.note_batch(len(batch), last_offset, timestamp)


def places(made: Segment) -> list[tuple[int, int, int]]:
    """Returns (position, last offset, size) of every batch."""
    return [(position, header.last_offset, header.size_bytes) for position, header, _ in made.scan(0)]


@given(st.lists(st.integers(1, 4), max_size=30), st.integers(2, 12), st.integers(95, 230))
def test_position_of_is_the_first_batch_that_does_not_end_before(counts: list[int], tail: int, offset: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_module, "TAIL_MAX", tail)
        patch.setattr(segment_module, "LOOKUP_BYTES", 100)
        made = segment_of(counts)
        expected = next((position for position, last, _ in places(made) if last >= offset), made.size)
        assert made.position_of(offset) == expected
        assert [made.batch_size_at(position) for position, _, _ in places(made)] == [size for _, _, size in places(made)]
        end = 100 + sum(counts)
        made.seal(end)
        made.release_file()
        assert not made.is_loaded
        assert made.position_of(offset) == (expected if offset < end else made.size)


def test_a_look_up_in_garbage_is_a_storage_error() -> None:
    made = segment_of([1] * 20)
    made.seal(120)
    made.file().pwrite(bytes(made.size), 0)
    with pytest.raises(StorageError, match="batch at"):
        made.position_of(119)
    with pytest.raises(StorageError, match="batch at"):
        made.header_at(made.size)


def test_sealed_segments_keep_a_bounded_number_of_files_open() -> None:
    open_files = OpenFiles(2)
    made = [segment_of([1, 1], open_files=open_files) for _ in range(5)]
    for each in made:
        each.seal(102)
    assert [each.shared is not None for each in made] == [False, False, False, True, True]
    assert made[0].file().size() == made[0].size
    assert [each.shared is not None for each in made] == [True, False, False, False, True]


def test_a_vanished_file_is_a_storage_error() -> None:
    disk = MemDisk(ROOT)
    made = segment_of([1], disk=disk)
    made.seal(101)
    made.release_file()
    disk.remove(made.path(".log"))
    with pytest.raises(StorageError, match="vanished"):
        made.file()


def test_the_largest_timestamp_of_a_sealed_segment_needs_no_batches() -> None:
    disk = MemDisk(ROOT)
    made = segment_of([1] * 30, disk=disk)
    made.seal(130)
    again = segment_of([], disk=disk)
    again.take_files(130)
    disk.fail_next("read", path_part=".log", count=None)
    assert again.largest_timestamp() == 129 == made.largest_timestamp()


def test_index_entries_stand_at_every_interval() -> None:
    made = segment_of([1] * 10, interval=2 * len(batch_of()))
    size = len(batch_of())
    assert list(made.index.positions) == [3 * size, 6 * size, 9 * size]
    assert [100 + offset for offset in made.index.offsets] == [103, 106, 109]


def test_an_index_that_cannot_be_written_early_does_not_fail_the_append() -> None:
    disk = MemDisk(ROOT)
    made = segment_of([1], disk=disk, interval=1)
    batch = batch_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_module, "PENDING_MAX", 1)
        disk.fail_next("write", path_part=".index")
        append(made, batch, 101, 5)
    assert (made.size, len(made.index), made.index.written) == (2 * len(batch), 1, 0)
    made.write_indexes()
    assert disk.read_file(made.path(".index")) == made.index.encode()


def test_aborted_transactions_are_kept_cut_and_read_again() -> None:
    disk = MemDisk(ROOT)
    made = segment_of([4, 4, 4], disk=disk)
    entries = [AbortedTransaction(1, 100, 103, 104), AbortedTransaction(2, 104, 107, 108)]
    for entry in entries:
        assert made.add_aborted(entry) == made.path(".txnindex")
    again = segment_of([], disk=disk)
    again.take_files(-1)
    assert again.has_aborted and list(again.aborted()) == entries
    again.cut_aborted(107)
    assert list(again.aborted()) == entries[:1]
    again.cut_aborted(100)
    assert not again.has_aborted and disk.read_file(made.path(".txnindex")) == b""


def test_jitter_makes_segments_roll_earlier_but_the_same_in_every_run() -> None:
    config = log_settings(segment_ms=1_000, segment_jitter_ms=500)
    limits = [LogBuilder(config).log.active.roll_ms for _ in range(2)]
    assert limits[0] == limits[1] and 500 < limits[0] <= 1_000


def test_truncating_restores_size_tail_and_indexes() -> None:
    made = segment_of([1] * 20)
    fresh = segment_of([1] * 12)
    assert made.truncate_to(112) == 112
    assert (made.size, made.indexed_position, made.max_timestamp) == (fresh.size, fresh.indexed_position, fresh.max_timestamp)
    assert made.index.encode() == fresh.index.encode() and made.times.encode() == fresh.times.encode()


@pytest.mark.parametrize("length", [-1, 3, 1 << 30])
def test_a_batch_with_a_damaged_length_is_not_served(length: int) -> None:
    built = LogBuilder(log_settings(index_interval_bytes=1))
    built.append_many(9)
    log = built.reopen()
    position = log.segments[0].position_of(4)
    file = built.disk.open(log.segments[0].path(".log"))
    file.pwrite(struct.pack(">i", length), position + 8)
    with pytest.raises(DamagedLogError, match=f"no batch at {position}"):
        log.read(4, 1000, end_offset=9)
    file.pwrite(struct.pack(">i", length), 8)
    with pytest.raises(DamagedLogError, match="no batch at 0"):
        log.read(0, 1000, end_offset=9)
    assert log.read(7, 1000, end_offset=9) is not None
