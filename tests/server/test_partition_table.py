"""The table of partitions: partitions are found by name and by id, created in the directory with the fewest partitions, dropped when they
are deleted, and never created twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.adapters.disk import OsDisk, OsFile
from ottla.adapters.randomness import SystemRandom
from ottla.base.cluster_metadata import ClusterMetadata
from ottla.base.errors import ApiError, DiskError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.partition_table import PartitionTable
from ottla.storage.log import Log
from ottla.wire.records import Record, encode_batch
from tests.controller.cluster import TOPIC_ID, state_of, with_topic
from tests.fakes import ManualClock, MemDisk, SeededRandom
from tests.fakes.log_settings import log_settings

FIRST, SECOND = bytes(range(16)), bytes(range(16, 32))


def directories_of(tmp_path: Path, *names: str) -> list[LogDirectoryState]:
    made = [LogDirectoryState(OsDisk(), str(tmp_path / name)) for name in names]
    for directory in made:
        directory.lock()
        directory.claim(0, "cluster", SystemRandom())
    return made


def make_partition(log: Log, high: int) -> Partition:
    return Partition(log, broker_id=0, high_watermark=high)


def table_of(directories: list[LogDirectoryState]) -> PartitionTable:
    return PartitionTable(OsDisk(), ManualClock(), directories, make_partition, metadata=ClusterMetadata(), producers_max=lambda: 1000)


def append(partition: Partition, count: int) -> None:
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(0,), isr=(0,), now_ms=0)
    for _ in range(count):
        partition.require_leading().append(encode_batch([Record(0, 1, None, b"v")]), acks=1, now_ms=1)


def open_all(table: PartitionTable, topic: str, count: int, topic_id: bytes = FIRST) -> list[Partition]:
    return [table.open(TopicPartition(topic, index), topic_id, log_settings(), is_new=True) for index in range(count)]


def test_found_by_name_and_by_id(tmp_path: Path) -> None:
    table = table_of(directories_of(tmp_path, "a"))
    first, second = open_all(table, "t", 2)
    assert table.get("t", 0) is first and table.get_by_id(FIRST, 1) is second
    assert table.get("t", 2) is None and table.get("u", 0) is None and table.get_by_id(SECOND, 0) is None
    assert table.topic_name(FIRST) == "t" and table.count() == 2 and list(table.all()) == [first, second]
    assert table.open(TopicPartition("t", 0), FIRST, log_settings()) is first, "a replica that is there is not opened again"


def test_all_of_them_in_pieces_between_which_some_go(tmp_path: Path) -> None:
    table = table_of(directories_of(tmp_path, "a"))
    first, second, third = open_all(table, "t", 3)
    (other,) = open_all(table, "u", 1, SECOND)
    assert list(table.in_pieces(2)) == [[first, second], [third, other], []]
    pieces = table.in_pieces(2)
    assert next(pieces) == [first, second]
    table.delete(other.topic_partition, SECOND)
    assert list(pieces) == [[third]]


def test_new_partitions_are_spread_and_found_again(tmp_path: Path) -> None:
    directories = directories_of(tmp_path, "a", "b", "c")
    table = table_of(directories)
    open_all(table, "t", 9)
    assert [len(directory.partition_names()) for directory in directories] == [3, 3, 3]
    places = {partition.topic_partition: partition.log.directory for partition in table.all()}
    again = table_of(directories)
    for key, place in places.items():
        assert again.open(key, FIRST, log_settings()).log.directory == place


def test_a_deleted_partition_is_forgotten_and_may_be_made_again(tmp_path: Path) -> None:
    table = table_of(directories_of(tmp_path, "a"))
    key = TopicPartition("t", 0)
    open_all(table, "t", 1)
    path = table.delete(key, FIRST)
    assert path is not None and path.endswith("-delete") and Path(path).is_dir()
    assert table.get("t", 0) is None and table.get_by_id(FIRST, 0) is None and table.topic_name(FIRST) is None
    assert table.delete(key, FIRST) is None
    assert table.open(key, SECOND, log_settings(), is_new=True).topic_id == SECOND


def test_i41_a_log_of_an_earlier_topic_of_that_name_is_not_opened(tmp_path: Path) -> None:
    directories = directories_of(tmp_path, "a")
    open_all(table_of(directories), "t", 1)
    table = table_of(directories)
    with pytest.raises(ApiError) as refused:
        table.open(TopicPartition("t", 0), SECOND, log_settings())
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert table.absence("t", 0) is ErrorCode.KAFKA_STORAGE_ERROR and table.absence("t", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_only_other_brokers_have_is_led_elsewhere(tmp_path: Path) -> None:
    """With NOT_LEADER_OR_FOLLOWER clients request the metadata again. An unknown topic would be an error, which librdkafka reports to the
    program."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)))
    table = PartitionTable(
        OsDisk(), ManualClock(), directories_of(tmp_path, "a"), make_partition, metadata=state, producers_max=lambda: 1000
    )
    assert table.absence("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert table.absence("t", 1) is table.absence("u", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (table.topic_name(TOPIC_ID), table.topic_name(b"?" * 16)) == ("t", None)


def test_no_directory_is_left(tmp_path: Path) -> None:
    (directory,) = directories_of(tmp_path, "a")
    table = table_of([directory])
    (partition,) = open_all(table, "t", 1)
    assert table.take_offline(directory, "broken") == [partition] and not partition.is_online
    with pytest.raises(ApiError, match="every log directory is offline"):
        open_all(table, "u", 1)


def test_what_may_lie_in_an_unknown_directory_is_not_made_anew(tmp_path: Path) -> None:
    directories = directories_of(tmp_path, "a")
    unknown = LogDirectoryState(OsDisk(), str(tmp_path / "b"))
    unknown.belong_to(0, "cluster", SystemRandom())
    unknown.go_offline("broken")
    table = table_of([*directories, unknown])
    key = TopicPartition("old", 0)
    with pytest.raises(ApiError, match="may lie in"):
        table.open(key, SECOND, log_settings())
    assert table.absence("old", 0) is ErrorCode.KAFKA_STORAGE_ERROR and table.delete(key, SECOND) is None
    (new,) = open_all(table, "new", 1)
    assert "/a/" in new.log.directory
    unknown.come_online()
    table.scan(unknown)
    assert unknown.is_claimed and table.open(key, SECOND, log_settings()).is_online


def test_a_deletion_that_a_kill_cut_off_is_finished(tmp_path: Path) -> None:
    """The topic was marked as deleted in the metadata, but its directory was not renamed yet. It is never opened again, and must still be
    removed (I41)."""
    directories = directories_of(tmp_path, "a")
    open_all(table_of(directories), "t", 1)
    table, key = table_of(directories), TopicPartition("t", 0)
    assert table.delete(key, SECOND) is None, "another topic's directory stays"
    path = table.delete(key, FIRST)
    assert path is not None and Path(path).is_dir()
    assert table.open(key, SECOND, log_settings(), is_new=True).is_online


@pytest.mark.parametrize("rounds", ["neither", "after the deletion", "after the creation"])
def test_i41_a_topic_made_anew_does_not_inherit_checkpoints(tmp_path: Path, rounds: str) -> None:
    """DeleteRecords, checkpoint, deletion of the topic, creation, append, kill -9: all appended records are there, from offset 0 on."""
    directories = directories_of(tmp_path, "a")
    (directory,), key, table = directories, TopicPartition("t", 0), table_of(directories)
    (old,) = open_all(table, "t", 1)
    append(old, 10)
    old.log.flush()
    old.log.advance_log_start(10)
    directory.clean_offsets[key] = 9
    assert directory.plan_checkpoints(table.all())() is None

    table.delete(key, FIRST)
    if rounds == "after the deletion":
        directory.plan_checkpoints(table.all())()
    (new,) = open_all(table, "t", 1, SECOND)
    assert new.log.log_start_offset == 0 and not directory.clean_offsets
    append(new, 3)
    if rounds == "after the creation":
        directory.plan_checkpoints(table.all())()
    directory.release()

    directories = directories_of(tmp_path, "a")
    again = table_of(directories).open(key, SECOND, log_settings())
    assert (again.log.log_start_offset, again.log.log_end_offset, again.log.recovery_point) == (0, 3, 0)
    assert not directories[0].clean_offsets
    directories[0].release()


def test_what_is_noted_of_a_log_that_cannot_be_opened_is_kept(tmp_path: Path) -> None:
    """Without the noted offsets, a later round of checkpoints would bring records back that DeleteRecords has removed."""
    directories = directories_of(tmp_path, "a")
    (directory,), key, table = directories, TopicPartition("t", 0), table_of(directories)
    (partition,) = open_all(table, "t", 1)
    append(partition, 10)
    partition.log.advance_log_start(10)
    directory.plan_checkpoints(table.all())()
    partition.log.close(clean=True)
    directory.release()

    directories = directories_of(tmp_path, "a")
    table = table_of(directories)
    segment = next((tmp_path / "a" / str(key)).glob("*.log"))
    segment.rename(tmp_path / "aside")
    segment.mkdir()
    with pytest.raises(ApiError, match="cannot"):
        table.open(key, FIRST, log_settings())
    directories[0].plan_checkpoints(table.all())()
    segment.rmdir()
    (tmp_path / "aside").rename(segment)
    assert table.open(key, FIRST, log_settings()).log.log_start_offset == 10
    directories[0].release()
    assert directories_of(tmp_path, "a")[0].noted(key, FIRST).log_start_offset == 10


class FullDisk(OsDisk):
    """A disk that is full below some paths."""

    __slots__ = ("full",)

    def __init__(self) -> None:
        self.full = ""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        if create and self.full and path.startswith(self.full):
            raise DiskError(f"cannot create {path}: No space left on device", path)
        return super().open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        if self.full and old.startswith(self.full):
            raise DiskError(f"cannot rename {old}: Input/output error", old)
        super().rename(old, new)


def table_on(disk: FullDisk, directories: list[LogDirectoryState]) -> PartitionTable:
    return PartitionTable(disk, ManualClock(), directories, make_partition, metadata=ClusterMetadata(), producers_max=lambda: 1000)


def test_a_log_that_could_not_be_made_for_lack_of_room_is_made_later(tmp_path: Path) -> None:
    (directory,), disk = directories_of(tmp_path, "a"), FullDisk()
    table, key = table_on(disk, [directory]), TopicPartition("t", 0)
    disk.full = str(tmp_path / "a" / "t-0")
    with pytest.raises(ApiError, match="No space left"):
        table.open(key, FIRST, log_settings(), is_new=True)
    assert table.unopened_in(directory) == [key] and not table.is_whole(directory)
    disk.full = ""
    made = table.open(key, FIRST, log_settings(), is_new=True)
    assert table.unopened_in(directory) == [] and table.is_whole(directory) and made.log.log_end_offset == 0
    assert directory.partition_names() == ["t-0"]


def test_a_damaged_log_is_not_tried_again_and_again(tmp_path: Path) -> None:
    (directory,) = directories_of(tmp_path, "a")
    open_all(table_of([directory]), "t", 1)
    table = table_of([directory])
    with pytest.raises(ApiError):
        table.open(TopicPartition("t", 0), SECOND, log_settings())
    assert table.unopened_in(directory) == []
    assert not table.is_whole(directory), "a clean marker would hide what is wrong from the next start"


def test_a_topic_made_anew_while_its_old_directory_is_offline_goes_to_a_healthy_one(tmp_path: Path) -> None:
    directories, disk = directories_of(tmp_path, "a", "b"), FullDisk()
    table, key = table_on(disk, directories), TopicPartition("t", 0)
    (old,) = open_all(table, "t", 1)
    assert "/a/" in old.log.directory
    append(old, 3)
    disk.full = str(tmp_path / "a")
    table.take_offline(directories[0], "broken")
    with pytest.raises(DiskError):
        table.delete(key, FIRST)
    (new,) = open_all(table, "t", 1, SECOND)
    assert "/b/" in new.log.directory and new.log.log_end_offset == 0

    again = table_of(directories_again := [directories[1], directories[0]])
    directories[0].come_online()
    assert again.scan(directories[0]) == [], "after a restart nothing is known of the deletion"
    assert again.open(key, SECOND, log_settings()).log.directory == new.log.directory
    assert directories_again[1].partition_names() == ["t-0"]

    disk.full = ""
    (removed,) = table.scan(directories[0])
    assert removed.startswith(str(tmp_path / "a")) and removed.endswith("-delete") and Path(removed).is_dir()
    assert table.get(*key) is new and "t-0" not in directories[0].partition_names()


def test_i41_what_an_earlier_topic_left_behind_is_set_aside_for_a_new_one(tmp_path: Path) -> None:
    directories = directories_of(tmp_path, "a")
    (old,) = open_all(table_of(directories), "t", 1)
    append(old, 3)
    (new,) = open_all(table_of(directories), "t", 1, SECOND)
    assert new.log.log_end_offset == 0 and new.topic_id == SECOND
    (stray,) = (tmp_path / "a").glob("*-stray")
    assert any(file.stat().st_size for file in stray.glob("*.log")), "what it is, and whether it may go, is for people to say"


def test_a_log_that_was_never_opened_is_whole_only_after_a_clean_stop(tmp_path: Path) -> None:
    """A broker that is stopped before a controller has sent it its replicas must not mark logs as clean that a crash may have damaged."""
    (directory,) = directories_of(tmp_path, "d")
    append(table_of([directory]).open(TopicPartition("a", 0), FIRST, log_settings(), is_new=True), 1)
    directory.release()
    (directory,) = directories_of(tmp_path, "d")
    table = table_of([directory])
    assert not table.is_whole(directory)
    table.open(TopicPartition("a", 0), FIRST, log_settings(), is_new=False)
    assert table.is_whole(directory)
    directory.note_boot()
    directory.close(is_clean=True)
    (directory,) = directories_of(tmp_path, "d")
    assert table_of([directory]).is_whole(directory)


def test_i44_after_a_failed_sync_and_a_kill_the_tail_of_a_log_is_written_again() -> None:
    """After a failed sync the kernel may drop the unsynced pages but still show them from its memory. A later sync then reports success,
    and only a power failure shows the loss. If no sync has failed, a killed process needs no such repair."""
    disk = MemDisk("/data")

    def started() -> tuple[LogDirectoryState, Partition]:
        directory = LogDirectoryState(disk, "/data", boot_id="boot")
        directory.claim(0, "cluster", SeededRandom(1))
        table = PartitionTable(disk, ManualClock(), [directory], make_partition, metadata=ClusterMetadata(), producers_max=lambda: 1000)
        partition = table.open(TopicPartition("t", 0), FIRST, log_settings(), is_new=not table.count())
        directory.note_boot()
        return directory, partition

    directory, partition = started()
    append(partition, 3)
    disk.fail_next("sync", path_part=".log", count=None)
    with pytest.raises(DiskError):
        partition.log.flush()
    directory.go_offline("a sync failed")
    disk.heal()
    _, partition = started()
    assert partition.log.log_end_offset == 3
    partition.log.flush()
    disk.crash()
    _, partition = started()
    assert partition.log.log_end_offset == 3


def started_on(disk: MemDisk, boot_id: str) -> tuple[LogDirectoryState, PartitionTable]:
    """A start of a broker on this boot of the machine."""
    directory = LogDirectoryState(disk, "/data", boot_id=boot_id)
    directory.claim(0, "cluster", SeededRandom(1))
    directory.note_boot()
    metadata = ClusterMetadata()
    return directory, PartitionTable(disk, ManualClock(), [directory], make_partition, metadata=metadata, producers_max=lambda: 1000)


def test_a_replica_created_again_does_not_inherit_the_recovery_point_of_the_former_one() -> None:
    """A replica is removed and created again before the next round of checkpoints, and a power failure tears its unsynced log. The
    checkpoint still has the former log's recovery point, below which the torn batches would count as damage."""
    key, ends = TopicPartition("t", 0), set()
    for seed in range(40):
        disk = MemDisk("/data")

        directory, table = started_on(disk, "first boot")
        former = table.open(key, FIRST, log_settings(), is_new=True)
        append(former, 10)
        former.log.flush()
        assert directory.plan_checkpoints(table.all())() is None
        assert table.delete(key, FIRST) is not None
        append(table.open(key, FIRST, log_settings(), is_new=True), 5)
        disk.crash(SeededRandom(seed))
        _, table = started_on(disk, "second boot")
        ends.add(table.open(key, FIRST, log_settings(), is_new=True).log.log_end_offset)
    assert ends <= {*range(6), 10}, "the log ends where it was torn, or the removal itself was lost"
    assert len(ends & set(range(6))) > 1, "no log was torn"


def test_damage_that_a_start_has_found_is_found_again_after_a_power_failure() -> None:
    """The ledger's row shows that the log was longer. Without a sync a power failure may bring an older row back."""
    key = TopicPartition("t", 0)
    for seed in range(40):
        disk = MemDisk("/data")
        directory, table = started_on(disk, "first boot")
        partition = table.open(key, FIRST, log_settings(), is_new=True)
        append(partition, 5)
        partition.log.flush()
        assert directory.plan_checkpoints(table.all())() is None
        append(partition, 5)
        partition.log.flush()
        (path,) = [path for path in disk.all_files() if path.endswith(".log")]
        data = disk.read_file(path)
        disk.write_file(path, data[: len(data) // 2])
        _, table = started_on(disk, "first boot")
        with pytest.raises(ApiError, match="damage"):
            table.open(key, FIRST, log_settings())
        disk.crash(SeededRandom(seed))
        _, table = started_on(disk, "second boot")
        with pytest.raises(ApiError, match="damage"):
            table.open(key, FIRST, log_settings())
