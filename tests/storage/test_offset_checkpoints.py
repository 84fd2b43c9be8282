"""Checkpoint entries are used only for the topic id that they were written for, whenever the power fails (I41)."""

from __future__ import annotations

from random import Random

from ottla.base.types import TopicPartition
from ottla.storage import small_files
from ottla.storage.offset_checkpoints import TOPIC_IDS_FILE, LogOffsets, read_entries, write_entries
from tests.fakes.disk import MemDisk

ROOT = "/data"
OLD, NEW = bytes(range(16)), bytes(range(16, 32))
KEY, OTHER = TopicPartition("t", 0), TopicPartition("u", 1)
OF_OLD = LogOffsets(OLD, 500, 501, 490, 300)
OF_NEW = LogOffsets(NEW, 7, 8, 5, 3)


def disk_with_directories() -> MemDisk:
    disk = MemDisk(ROOT)
    for key, topic_id in ((KEY, OLD), (OTHER, OLD)):
        disk.write_file(f"{ROOT}/{key}/{small_files.PARTITION_METADATA_FILE}", b"")
        small_files.write_topic_id(disk, f"{ROOT}/{key}", topic_id)
    return disk


def read(disk: MemDisk) -> dict[TopicPartition, LogOffsets]:
    return read_entries(disk, ROOT, lambda _: None)


def test_what_was_written_is_read_again_in_kafkas_files() -> None:
    disk = disk_with_directories()
    written = {KEY: OF_OLD, OTHER: LogOffsets(NEW, 3, 4)}
    write_entries(disk, ROOT, written)
    assert read(disk) == written
    assert disk.read_file(f"{ROOT}/{small_files.RECOVERY_POINT_FILE}") == b"0\n2\nt 0 500\nu 1 3\n"
    assert disk.read_file(f"{ROOT}/{small_files.LOG_START_FILE}") == b"0\n1\nt 0 490\n"
    assert disk.read_file(f"{ROOT}/{small_files.CLEANER_OFFSET_FILE}") == b"0\n1\nt 0 300\n"


def test_i41_at_no_moment_of_a_round_does_a_new_topic_inherit() -> None:
    """The round with the old topic is complete. The next round, which has a new topic of that name, is interrupted at each point in
    turn."""
    images: list[MemDisk] = []
    disk = disk_with_directories()
    write_entries(disk, ROOT, {KEY: OF_OLD, OTHER: OF_OLD})
    random = Random(7)
    disk.on_change = lambda _operation, _path: images.extend((disk.image(), disk.image(random)))
    write_entries(disk, ROOT, {KEY: OF_NEW, OTHER: OF_OLD})
    assert read(disk)[KEY] == OF_NEW
    for image in images:
        found = read(image)
        assert KEY not in found or found[KEY] == OF_NEW or found[KEY].topic_id == OLD
        assert found[OTHER] == OF_OLD
    assert any(found is not None and found.topic_id == OLD for image in images if (found := read(image).get(KEY)))


def test_i41_an_entry_without_its_row_does_not_count() -> None:
    """The first round with a topic was interrupted before its last file. Later the topic was deleted, and another topic of that name was
    created."""
    disk = disk_with_directories()
    write_entries(disk, ROOT, {OTHER: OF_OLD})
    small_files.write_offsets(disk, f"{ROOT}/{small_files.RECOVERY_POINT_FILE}", {KEY: 500, OTHER: 500})
    assert set(read(disk)) == {OTHER}


def test_i41_entries_of_partitions_that_are_gone_go_before_anything_is_made() -> None:
    """Otherwise a partition that is created again with the same topic id would inherit the offsets of its lost log."""
    disk = disk_with_directories()
    write_entries(disk, ROOT, {KEY: OF_OLD, OTHER: OF_OLD})
    disk.remove_tree(f"{ROOT}/{KEY}")
    assert set(read(disk)) == {OTHER}
    disk.makedirs(f"{ROOT}/{KEY}")
    assert set(read(disk)) == {OTHER}


def test_a_directory_of_kafka_is_taken_over_once() -> None:
    disk = disk_with_directories()
    small_files.write_offsets(disk, f"{ROOT}/{small_files.RECOVERY_POINT_FILE}", {KEY: 500, TopicPartition("gone", 0): 3})
    small_files.write_offsets(disk, f"{ROOT}/{small_files.LOG_START_FILE}", {KEY: 490})
    expected = {KEY: LogOffsets(OLD, 500, 0, 490, 0)}
    assert read(disk) == expected
    assert disk.exists(f"{ROOT}/{TOPIC_IDS_FILE}")
    small_files.write_topic_id(disk, f"{ROOT}/{KEY}", NEW)
    assert read(disk) == expected, "from now on the row counts, not the directory"


def test_a_damaged_file_is_reported_and_counts_as_lost() -> None:
    disk = disk_with_directories()
    write_entries(disk, ROOT, {KEY: OF_OLD})
    disk.write_file(f"{ROOT}/{small_files.LOG_START_FILE}", b"0\n7\nnonsense\n")
    disk.write_file(f"{ROOT}/{TOPIC_IDS_FILE}", b"0\n1\nt !\n")
    reports: list[str] = []
    assert read_entries(disk, ROOT, reports.append) == {KEY: OF_OLD._replace(log_start_offset=0)}
    assert [name for name in (small_files.LOG_START_FILE, TOPIC_IDS_FILE) if any(name in report for report in reports)] != []
    assert len(reports) == 2


def test_a_full_disk_does_not_stop_the_start() -> None:
    disk = disk_with_directories()
    small_files.write_offsets(disk, f"{ROOT}/{small_files.RECOVERY_POINT_FILE}", {KEY: 500})
    disk.fail_next("write", 28, count=None)
    reports: list[str] = []
    assert read_entries(disk, ROOT, reports.append) == {KEY: LogOffsets(OLD, 500)}
    assert len(reports) == 1
