"""The files of a new partition's log, and its recovery after a crash at any moment before its first clean stop."""

from __future__ import annotations

import errno

import pytest

from ottla.storage.small_files import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, read_topic_id
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.fakes.randomness import SeededRandom
from tests.storage.log_builder import DIRECTORY, ROOT, TOPIC_ID, LogBuilder, batch_of, names, read_all

LOG, INDEX, TIMES = (f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))


class WatchedDisk(MemDisk):
    """Records the opened files, and how often a directory is listed."""

    def __init__(self) -> None:
        super().__init__(ROOT)
        self.opened: list[str] = []
        self.listed = 0

    def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
        self.opened.append(path)
        return super().open(path, create=create)

    def listdir(self, path: str) -> list[str]:
        self.listed += 1
        return super().listdir(path)


def memory(built: LogBuilder) -> MemDisk:
    assert isinstance(built.disk, MemDisk)
    return built.disk


def write_old_layout(disk: MemDisk) -> None:
    """Writes the files that an empty log of an earlier version had: all of them from the beginning."""
    disk.write_file(f"{DIRECTORY}/{LEADER_EPOCH_FILE}", b"0\n0\n")
    for name in (INDEX, TIMES):
        disk.write_file(f"{DIRECTORY}/{name}", b"")


def test_a_new_log_is_two_files_and_no_look_at_its_directory() -> None:
    """With 8,000 topics, creating another one took 2 ms, most of it for opening files."""
    disk = WatchedDisk()
    built = LogBuilder(disk=disk)
    assert disk.opened == [f"{DIRECTORY}/{PARTITION_METADATA_FILE}", f"{DIRECTORY}/{LOG}"] and not disk.listed
    assert read_topic_id(disk, DIRECTORY) == TOPIC_ID
    assert built.log.log_end_offset == 0


@pytest.mark.parametrize("is_old_layout", [False, True])
@pytest.mark.parametrize("was_clean", [False, True])
def test_an_empty_log_is_opened_again_without_a_remark(was_clean: bool, is_old_layout: bool) -> None:
    built = LogBuilder()
    if is_old_layout:
        write_old_layout(memory(built))
    built.log.close(clean=was_clean)
    before = names(built.disk)
    log = built.open(was_clean=was_clean)
    assert not log.recovery_notes and names(built.disk) == before
    built.append_many(3)
    assert {INDEX, TIMES} <= set(names(built.disk))
    good = read_all(built.log)
    log = built.reopen()
    assert read_all(log) == good and len(good) == 3 and log.epochs.entries() == [(0, 0)]
    assert not log.recovery_notes


@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize("is_old_layout", [False, True])
def test_the_first_batches_survive_a_kill_without_a_remark(is_old_layout: bool, is_synced: bool) -> None:
    """The file of epochs is written at the first sync. Until then recovery finds the epochs in the batches, because it checks all of
    them."""
    built = LogBuilder()
    if is_old_layout:
        write_old_layout(memory(built))
    built.append(batch_of(2), leader_epoch=3)
    built.append(batch_of(2), leader_epoch=5)
    assert (LEADER_EPOCH_FILE in names(built.disk)) is is_old_layout
    if is_synced:
        for file in built.log.unflushed_files():
            file.sync()
        built.log.mark_flushed(4)
        built.checkpoint()
        assert LEADER_EPOCH_FILE in names(built.disk)
    good = read_all(built.log)
    log = built.kill()
    assert read_all(log) == good and log.epochs.entries() == [(3, 0), (5, 2)]
    assert not log.recovery_notes
    log.flush()
    built.checkpoint()
    log = built.kill()
    assert log.epochs.entries() == [(3, 0), (5, 2)] and not log.recovery_notes


def test_at_no_moment_of_a_first_life_does_a_power_cut_cost_what_was_synced() -> None:
    """I5, I41, I43: the power fails after each change of the disk, from the creation of the directory to the first sync. Any part of the
    unsynced bytes may be lost."""
    images: list[tuple[int, MemDisk]] = []
    disk = MemDisk(ROOT)
    built: LogBuilder | None = None

    def keep(_operation: str, _path: str) -> None:
        point = built.log.recovery_point if built is not None else 0
        images.extend((point, disk.image(SeededRandom(seed))) for seed in range(4))

    disk.on_change = keep
    built = LogBuilder(disk=disk)
    built.append(batch_of(2), leader_epoch=3)
    built.log.flush()
    built.append(batch_of(2), leader_epoch=5)
    built.log.flush()
    keep("", "")
    assert len(images) > 60 and {point for point, _ in images} == {0, 2, 4}
    for point, image in images:
        log = LogBuilder(disk=image, recovery_point=point).log
        assert log.log_end_offset >= point and read_topic_id(image, DIRECTORY) == TOPIC_ID
        assert log.epochs.entries() == [entry for entry in ((3, 0), (5, 2)) if entry[1] < log.log_end_offset]


def test_a_kill_within_the_writing_of_the_topic_id_leaves_a_directory_that_can_be_used() -> None:
    disk = MemDisk(ROOT)
    disk.write_file(f"{DIRECTORY}/{PARTITION_METADATA_FILE}", b"version: 0\ntopi")
    built = LogBuilder(disk=disk)
    assert read_topic_id(disk, DIRECTORY) == TOPIC_ID and built.append(batch_of()) == 0


def test_a_batch_is_stored_even_if_its_indexes_cannot_be_made() -> None:
    """The failure is reported by the next sync, like a failed write of any index entry."""
    built = LogBuilder(log_settings(index_interval_bytes=1))
    memory(built).fail_next("open", errno.ENOSPC, path_part=".index")
    built.append_many(2)
    assert INDEX not in names(built.disk)
    good = read_all(built.log)
    assert read_all(built.kill()) == good
    assert {INDEX, TIMES} <= set(names(built.disk))


@pytest.mark.parametrize("left_bytes", [0, 10])
def test_an_emptied_log_has_no_stale_index_entries(left_bytes: int) -> None:
    """A power failure has lost the batches and kept their index entries."""
    built = LogBuilder(log_settings(index_interval_bytes=1))
    built.append_many(5)
    built.log.write_recovery_aids(0)
    stale = memory(built).read_file(f"{DIRECTORY}/{INDEX}")
    built.log.close(clean=False)
    memory(built).open(f"{DIRECTORY}/{LOG}").truncate(left_bytes)
    log = built.open(was_clean=False)
    assert log.log_end_offset == 0 and len(stale) == 4 * 8
    built.append_many(2)
    log = built.reopen()
    assert len(read_all(log)) == 2 and not log.recovery_notes
    assert len(memory(built).read_file(f"{DIRECTORY}/{INDEX}")) == 8


def test_a_lost_epoch_file_is_made_again_once() -> None:
    built = LogBuilder()
    built.append(batch_of(2), leader_epoch=3)
    built.log.close(clean=True)
    built.checkpoint()
    memory(built).remove(f"{DIRECTORY}/{LEADER_EPOCH_FILE}")
    log = built.open(was_clean=True)
    assert log.epochs.entries() == [(3, 0)] and "leader-epoch-checkpoint is missing" in log.recovery_notes[0]
    log = built.reopen()
    assert log.epochs.entries() == [(3, 0)] and not log.recovery_notes
