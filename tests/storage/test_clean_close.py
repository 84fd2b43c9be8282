"""What a clean close writes and syncs: nothing if the log has not changed, everything if it has."""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.base.ports import File
from ottla.replication.partition import Partition
from ottla.storage import clean_close
from ottla.storage.file_slice import PathSync
from tests.fakes.disk import MemDisk
from tests.storage.log_builder import LogBuilder, batch_of, offsets_of


def written() -> LogBuilder:
    built = LogBuilder()
    built.append(batch_of(3), leader_epoch=4)
    built.reopen()
    return built


def test_a_new_leader_epoch_without_a_record_is_no_change() -> None:
    """Each start begins a new epoch in every log. Formerly such a log was treated as changed, so a stop with 3,000 logs took 28 s."""
    built = written()
    partition = Partition(built.log, broker_id=1)
    partition.become_leader(leader_epoch=5, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    assert clean_close.prepare(built.log) == []
    clean_close.finish(built.log, 3)
    log = built.open(was_clean=True)
    assert log.epochs.entries() == [(4, 0)] and offsets_of(log) == [0] and not log.recovery_notes


def test_a_record_of_the_new_epoch_is_one() -> None:
    built = written()
    built.append(batch_of(2), leader_epoch=5)
    files = clean_close.prepare(built.log)
    assert [file.path.rpartition("/")[2] for file in files if isinstance(file, PathSync)] == ["leader-epoch-checkpoint"]
    for file in files:
        file.sync()
    clean_close.finish(built.log, 5)
    built.checkpoint()
    assert isinstance(built.disk, MemDisk)
    built.disk.crash()
    log = built.open(was_clean=True)
    assert log.epochs.entries() == [(4, 0), (5, 3)] and offsets_of(log) == [0, 3]
    assert clean_close.prepare(log) == []


def opened_by(built: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the names of the files that `prepare` opens, in order."""
    opened: list[str] = []
    open_file = built.disk.open

    def note(path: str, **options: bool) -> File:
        opened.append(path.rpartition("/")[2])
        return open_file(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(built.disk, "open", note)
        clean_close.prepare(built.log)
    return opened


def test_files_that_lack_little_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few records in a new epoch change only the file of epochs. Formerly other files were written too, and each took a third of the stop
    of 3,000 logs."""
    built = written()
    built.append(batch_of(2), leader_epoch=5)
    assert opened_by(built, monkeypatch) == ["leader-epoch-checkpoint"] * 2, "it is read and added to"
    clean_close.finish(built.log, 5)
    built.checkpoint()
    log = built.open(was_clean=True)
    assert log.active.shared is None, "an idle log keeps no file open"
    assert log.epochs.entries() == [(4, 0), (5, 3)] and offsets_of(log) == [0, 3] and not log.recovery_notes


def test_a_new_logs_epochs_get_a_file_without_a_rename(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly temporary files took a third of the stop of 3,000 new logs."""
    built = LogBuilder()
    built.append(batch_of(3), leader_epoch=4)
    assert opened_by(built, monkeypatch) == ["00000000000000000000.timeindex", "leader-epoch-checkpoint", "leader-epoch-checkpoint"]
    clean_close.finish(built.log, 3)
    built.checkpoint()
    log = built.open(was_clean=True)
    assert log.epochs.entries() == [(4, 0)] and offsets_of(log) == [0] and not log.recovery_notes


def test_each_file_of_a_changed_log_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = written()
    while built.log.active.size <= clean_close.UNAIDED_BYTES_MAX + built.log.active.index_interval_bytes:
        built.append(batch_of(20), leader_epoch=5)
    end = built.log.log_end_offset
    name = "00000000000000000000"
    expected = [f"{end:020d}.snapshot.tmp", f"{name}.index", f"{name}.timeindex", "leader-epoch-checkpoint", "leader-epoch-checkpoint"]
    assert sorted(opened_by(built, monkeypatch)) == sorted(expected)


def test_the_note_of_a_cut_is_removed() -> None:
    built = written()
    path = f"{built.log.directory}/recovery-point-cut"
    built.append(batch_of(2), leader_epoch=5)
    built.log.flush()
    built.log.truncate_to(3)
    assert built.disk.exists(path)
    for file in clean_close.prepare(built.log):
        file.sync()
    clean_close.finish(built.log, 3)
    assert not built.disk.exists(path)


def test_a_read_alone_leaves_nothing_to_sync() -> None:
    built = written()
    assert offsets_of(built.log) == [0]
    assert clean_close.prepare(built.log) == []


def test_an_epoch_file_that_cannot_be_used_is_written_again() -> None:
    built = written()
    built.log.close(clean=True)
    path = f"{built.log.directory}/leader-epoch-checkpoint"
    built.disk.remove(path)
    log = built.open(was_clean=True)
    assert log.epochs.entries() == [(4, 0)] and log.epochs.is_dirty
    log.close(clean=True)
    assert built.disk.exists(path)


def test_a_broken_log_is_neither_written_nor_marked() -> None:
    built = written()
    built.append(batch_of(1))
    built.log.is_broken = True
    before = built.log.recovery_point
    assert clean_close.prepare(built.log) == []
    clean_close.finish(built.log, built.log.log_end_offset)
    assert built.log.recovery_point == before < built.log.log_end_offset


def test_a_sync_that_fails_raises() -> None:
    built = written()
    built.append(batch_of(1))
    assert isinstance(built.disk, MemDisk)
    built.disk.fail_next("sync")
    with pytest.raises(StorageError):
        built.log.close(clean=True)
