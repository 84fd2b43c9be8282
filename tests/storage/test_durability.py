"""Which files must be synced, in which order, and up to which offset a finished round makes the log durable (I5, I44)."""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.storage.file_slice import DirectorySync, PathSync, SharedFile
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import LogBuilder, batch_of, marker_of, offsets_of


def test_contents_come_before_names() -> None:
    built = LogBuilder(log_settings(segment_bytes=100))
    built.append_many(3)
    kinds = [type(file) for file in built.log.unflushed_files()]
    assert kinds[:3] == [SharedFile] * 3
    assert kinds[-2:] == [DirectorySync, DirectorySync]
    assert set(kinds[3:-2]) == {PathSync}


def test_the_usual_round_is_one_file() -> None:
    built = LogBuilder()
    built.append(batch_of())
    built.log.flush()
    built.append(batch_of())
    assert [type(file) for file in built.log.unflushed_files()] == [SharedFile]


def test_an_abort_brings_its_index_into_the_round() -> None:
    built = LogBuilder()
    built.append(batch_of(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    built.log.flush()
    built.append(marker_of(is_commit=False, producer_id=1))
    paths = [file.path for file in built.log.unflushed_files() if isinstance(file, PathSync)]
    assert paths == [built.log.active.path(".txnindex")]
    built.log.flush()
    built.checkpoint()
    assert built.crash().aborted_transactions(0, 2) == [(1, 0)]


def test_a_failed_round_proves_nothing_and_its_files_come_again() -> None:
    built = LogBuilder()
    built.append_many(4)
    assert isinstance(built.disk, MemDisk)
    built.disk.fail_next("sync")
    with pytest.raises(StorageError):
        built.log.flush()
    assert built.log.recovery_point == 0
    first = [type(file) for file in built.log.unflushed_files()]
    assert [type(file) for file in built.log.unflushed_files()] == first and PathSync in first


def test_a_file_noted_during_a_round_waits_for_the_next() -> None:
    built = LogBuilder()
    built.append(batch_of(), leader_epoch=1)
    end, files = built.log.log_end_offset, built.log.unflushed_files()
    built.append(batch_of(), leader_epoch=2)
    for file in files:
        file.sync()
    built.log.mark_flushed(end)
    assert any(isinstance(file, PathSync) and "leader-epoch" in file.path for file in built.log.unflushed_files())


def test_a_segment_begun_during_a_round_has_no_durable_name_after_it() -> None:
    built = LogBuilder()
    built.append(batch_of())
    end, files = built.log.log_end_offset, built.log.unflushed_files()
    for file in files:
        file.sync()
    built.log.roll()
    built.log.mark_flushed(end)
    assert [segment.is_name_durable for segment in built.log.segments] == [True, False]


def test_marks_never_go_back() -> None:
    built = LogBuilder()
    built.append_many(4)
    built.log.flush()
    built.log.mark_flushed(2)
    assert built.log.recovery_point == 4


def test_after_starting_anew_an_old_round_proves_nothing() -> None:
    built = LogBuilder()
    built.append_many(4)
    files = built.log.unflushed_files()
    built.log.truncate_fully_and_start_at(2)
    for file in files:
        file.sync()
    built.append_many(3)
    built.log.mark_flushed(4)
    assert built.log.recovery_point == 2
    built.checkpoint()
    assert offsets_of(built.crash()) == []
    assert built.log.log_end_offset == 2
