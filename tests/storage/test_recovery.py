"""The state of a log after a clean stop, a kill or a power failure, and with damaged files (I5, I6, I43)."""

from __future__ import annotations

import contextlib

import pytest

from ottla.base.errors import DamagedLogError, DiskError, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.types import NO_LEADER_EPOCH
from ottla.storage.log import Log
from ottla.storage.recovery import offset_of
from ottla.wire.batch_header import BATCH_OVERHEAD
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.fakes.randomness import SeededRandom
from tests.storage.log_builder import (
    DIRECTORY,
    PARTITION,
    ROOT,
    TOPIC_ID,
    LogBuilder,
    batch_of,
    marker_of,
    names,
    offsets_of,
    read_all,
)

SMALL = log_settings(segment_bytes=600, index_interval_bytes=150)


class CountingDisk(MemDisk):
    """Counts the bytes read from segments, and the listings of directories."""

    read_bytes = lists = 0

    def maybe_fail(self, operation: str, path: str) -> None:
        self.lists += operation == "list"
        if operation == "read" and path.endswith(".log"):
            self.read_bytes += 1
        super().maybe_fail(operation, path)


def memory(built: LogBuilder) -> MemDisk:
    assert isinstance(built.disk, MemDisk)
    return built.disk


def filled(config: LogConfig = SMALL, number: int = 24) -> LogBuilder:
    """Returns a log of several segments with epochs, a producer and aborted transactions."""
    built = LogBuilder(config)
    for index in range(number):
        kind = index % 4
        if kind == 1:
            sequence = index // 4 * 2
            batch = batch_of(2, producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True, timestamp=1_000 + index)
        elif kind == 3:
            batch = marker_of(is_commit=index % 8 == 3, producer_id=7, timestamp=1_000 + index)
        else:
            batch = batch_of(2, timestamp=1_000 + index * 7 % 50)
        built.append(batch, leader_epoch=index // 6)
    return built


def files_of(built: LogBuilder, *suffixes: str) -> dict[str, bytes]:
    return {path: data for path, data in memory(built).all_files().items() if path.endswith(suffixes)}


def state_of(log: Log) -> tuple[object, ...]:
    end = log.log_end_offset
    return (
        [data for _, data in read_all(log)],
        log.epochs.entries(),
        log.aborted_transactions(0, end),
        log.producers.first_unstable_offset,
        [(entry.producer_id, entry.epoch, entry.batches, entry.next_sequence) for entry in log.producers.active()],
    )


def test_a_clean_stop_and_start_changes_nothing() -> None:
    built = filled()
    before = state_of(built.log)
    log = built.reopen()
    assert state_of(log) == before
    assert log.recovery_notes == []
    assert log.recovery_point == log.log_end_offset


def test_a_clean_start_looks_at_the_end_only() -> None:
    disk = CountingDisk(ROOT)
    built = LogBuilder(log_settings(segment_bytes=20_000, index_interval_bytes=1_000), disk=disk)
    built.append_many(2_000)
    built.log.close(clean=True)
    built.checkpoint()
    disk.read_bytes = disk.lists = 0
    built.open(was_clean=True)
    assert disk.lists == 1, "a start opens all logs"
    assert disk.read_bytes <= 2
    assert built.log.log_end_offset == 2_000


def test_after_a_kill_everything_written_is_there() -> None:
    built = filled()
    before = state_of(built.log)
    log = built.kill()
    assert state_of(log) == before
    assert log.recovery_point == 0


def test_after_a_kill_only_what_lies_behind_the_recovery_point_is_read() -> None:
    disk = CountingDisk(ROOT)
    built = LogBuilder(log_settings(segment_bytes=200_000, index_interval_bytes=1_000), disk=disk)
    built.append_many(9_000, size=100)
    built.log.flush()
    built.log.write_recovery_aids(0)
    built.checkpoint()
    built.append_many(10)
    built.log.close(clean=False)
    disk.read_bytes = 0
    built.open(was_clean=False)
    assert disk.read_bytes <= 4
    assert built.log.log_end_offset == 9_010


def test_a_power_cut_within_a_recovery_loses_no_aborted_transaction() -> None:
    """I24, I43: recovery does not rebuild the index of aborted transactions below the recovery point, so the file is replaced
    atomically."""
    built = LogBuilder()
    for number in range(3):
        built.append(batch_of(producer_id=number, producer_epoch=0, base_sequence=0, is_transactional=True))
        built.append(marker_of(is_commit=False, producer_id=number))
    built.log.flush()
    built.checkpoint()
    disk = memory(built)
    images: list[MemDisk] = []
    disk.on_change = lambda _operation, _path: images.extend(disk.image(SeededRandom(seed)) for seed in range(5))
    built.kill()
    built.log.truncate_to(4)
    disk.on_change = None
    assert len(images) > 15
    for image in images:
        again = LogBuilder(disk=image, recovery_point=min(built.recovery_point, 4))
        assert again.log.aborted_transactions(0, 4) == [(0, 0), (1, 2)]


@pytest.mark.parametrize(
    ("suffix", "damage", "was_clean"),
    [
        (suffix, damage, was_clean)
        for suffix in (".index", ".timeindex", ".txnindex")
        for damage in ("missing", "cut", "garbage", "zeros")
        for was_clean in (True, False)
        if suffix == ".index" or not was_clean or damage in ("cut", "garbage") or (suffix == ".timeindex" and damage == "missing")
    ],
)
def test_a_missing_or_damaged_index_is_made_again_as_it_was(suffix: str, damage: str, was_clean: bool) -> None:
    """I6. After a clean stop, a missing transaction index and a single entry of zeros look valid, so these cases are excluded."""
    built = filled()
    aborted = built.log.aborted_transactions(0, built.log.log_end_offset)
    built.log.close(clean=True)
    if was_clean:
        built.checkpoint()
    good = files_of(built, suffix)
    assert any(good.values())
    for path, data in good.items():
        if damage == "missing":
            memory(built).remove(path)
        elif data:
            memory(built).write_file(path, {"cut": data[:-1], "garbage": b"\xff" * len(data), "zeros": bytes(len(data))}[damage])
    log = built.open(was_clean=was_clean)
    for segment in log.segments:
        segment.load_indexes()
    assert log.aborted_transactions(0, log.log_end_offset) == aborted != []
    log.close(clean=True)
    assert files_of(built, suffix) == good
    if damage != "missing" and was_clean:
        assert log.recovery_notes


@pytest.mark.parametrize("entry", [0, 1, -1])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_index_entry_of_which_the_end_was_lost_is_noticed(is_sealed: bool, entry: int) -> None:
    """I6: indexes are not synced, so a power failure may leave a part of an entry, which looks valid."""
    built = LogBuilder(log_settings(index_interval_bytes=100))
    built.append_many(30)
    if is_sealed:
        built.log.roll()
    built.log.flush()
    built.checkpoint()
    good = read_all(built.log)
    path = built.log.segments[0].path(".index")
    built.log.close(clean=False)
    data = bytearray(memory(built).read_file(path))
    at = entry * 8 % len(data)
    data[at + 7] = 0
    assert bytes(data) != memory(built).read_file(path)
    memory(built).write_file(path, bytes(data))
    log = built.open(was_clean=False)
    for header, _ in good:
        piece = log.read(header.base_offset, 1, end_offset=log.log_end_offset)
        assert piece is not None and piece.read()[:8] == header.base_offset.to_bytes(8, "big")
    assert read_all(log) == good


def test_a_torn_tail_is_cut_and_nothing_else() -> None:
    """I43: batches before the torn tail are kept."""
    built = filled()
    batches = read_all(built.log)
    path = built.log.active.path(".log")
    built.log.close(clean=False)
    whole = memory(built).read_file(path)
    for cut in range(1, 60, 7):
        memory(built).write_file(path, whole[:-cut])
        log = built.open(was_clean=False)
        assert read_all(log) == batches[:-1]
        assert any("cut" in note for note in log.recovery_notes)
        log.close(clean=False)


def test_a_wrong_crc_in_the_tail_cuts_from_there_over_all_later_segments() -> None:
    built = filled()
    batches = read_all(built.log)
    victim = built.log.segments[2]
    path, base = victim.path(".log"), victim.base_offset
    built.log.close(clean=False)
    memory(built).flip_bits(path, 40)
    log = built.open(was_clean=False)
    assert log.log_end_offset == base
    assert read_all(log) == [(header, data) for header, data in batches if header.base_offset < base]
    assert not [name for name in names(built.disk) if name.endswith(".log") and int(name[:20]) > base]
    assert log.epochs.entries()[-1][1] < base
    assert built.append(batch_of(), leader_epoch=90) == base


def test_damage_below_the_recovery_point_is_never_cut() -> None:
    """P11: the error names the file and the offset, and the files are not changed."""
    built = filled()
    built.log.flush()
    built.checkpoint()
    path = built.log.active.path(".log")
    base = built.log.active.base_offset
    built.log.close(clean=False)
    whole = memory(built).read_file(path)
    memory(built).write_file(path, whole[:-3])
    with pytest.raises(StorageError, match=rf"{path}.*recovery point"):
        built.open(was_clean=False)
    assert memory(built).read_file(path) == whole[:-3]
    memory(built).write_file(path, b"\0" * len(whole))
    with pytest.raises(StorageError, match=rf"offset {base} "):
        built.open(was_clean=False)


@pytest.mark.parametrize("at", [BATCH_OVERHEAD, -1, 20], ids=["record", "end", "crc"])
def test_a_damaged_marker_below_the_recovery_point_is_damage_of_the_log(at: int) -> None:
    """Formerly a marker that could not be decoded ended the opening of all later logs, and a flipped kind was not noticed."""
    built = LogBuilder()
    built.append(batch_of(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    marker = built.append(marker_of(is_commit=True, producer_id=7))
    built.append(batch_of())
    built.log.flush()
    built.checkpoint()
    memory(built).write_back()
    path = built.log.active.path(".log")
    begin, end = next((at, at + found.size_bytes) for at, found, _ in built.log.active.scan(0) if found.base_offset == marker)
    memory(built).flip_bits(path, begin + at if at > 0 else end + at)
    with pytest.raises(StorageError, match=rf"marker at {begin} \(offset {marker}\) has a wrong CRC"):
        built.kill()


def test_a_log_truncated_just_before_the_crash_is_taken_as_it_is() -> None:
    built = LogBuilder()
    built.append_many(20)
    built.log.flush()
    built.checkpoint()
    built.log.truncate_to(11)
    log = built.kill()
    assert log.log_end_offset == log.recovery_point == 11


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n9\n1 2\n", b"1\n0\n", b"0\n2\n5 0\n3 8\n", b"0\n1\nx y\n", b"\xff\xfe"])
def test_a_torn_epoch_file_is_made_again_from_the_batches(content: bytes) -> None:
    built = filled()
    entries = built.log.epochs.entries()
    built.log.close(clean=True)
    built.checkpoint()
    memory(built).write_file(f"{DIRECTORY}/leader-epoch-checkpoint", content)
    log = built.open(was_clean=True)
    assert log.epochs.entries() == entries
    assert any("leader-epoch-checkpoint" in note for note in log.recovery_notes)


def test_epochs_that_begin_in_damage_below_the_recovery_point_are_unknown() -> None:
    """Formerly a wrong epoch was noted there. The batches of another replica then seemed to have another history, and the damage was not
    repaired."""
    built = LogBuilder(log_settings(segment_bytes=100))
    for epoch in (0, 1, 1):
        built.append(batch_of(3), leader_epoch=epoch)
    built.log.flush()
    built.checkpoint()
    memory(built).write_back()
    memory(built).write_file(f"{DIRECTORY}/leader-epoch-checkpoint", b"")
    memory(built).flip_bits(built.log.segments[1].path(".log"), 16)
    log = built.kill()
    assert log.log_end_offset == 9
    assert log.epochs.epoch_at(3) == NO_LEADER_EPOCH


def test_a_damaged_snapshot_is_removed_and_an_older_one_serves() -> None:
    built = filled()
    before = state_of(built.log)
    built.log.close(clean=True)
    built.checkpoint()
    paths = sorted(files_of(built, ".snapshot"))
    for path in paths[-2:]:
        memory(built).flip_bits(path, 8)
    log = built.open(was_clean=True)
    assert state_of(log) == before
    assert len(log.recovery_notes) == 2
    assert not memory(built).exists(paths[-1])


def test_leftovers_go() -> None:
    built = filled()
    before = state_of(built.log)
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.index.cleaned", "x.tmp", "00000000000000099999.index"):
        memory(built).write_file(f"{DIRECTORY}/{name}", b"old")
    assert state_of(built.kill()) == before
    assert not [name for name in names(built.disk) if name.endswith((".deleted", ".cleaned", ".tmp")) or "99999" in name]


def test_segments_below_the_start_that_came_back_are_dropped() -> None:
    built = LogBuilder(SMALL)
    built.append_many(30)
    second = built.log.segments[1].base_offset
    built.log.flush()
    built.log.advance_log_start(second + 1)
    built.log.delete_expired(0, 30)
    built.checkpoint()
    log = built.crash()
    assert (log.log_start_offset, log.segments[0].base_offset, log.log_end_offset) == (second + 1, second, 30)


@pytest.mark.parametrize(("name", "offset"), [("00000000000000000012.log", 12), ("12.log", None), ("00000000000000000012.log.swap", None)])
def test_offsets_in_names(name: str, offset: int | None) -> None:
    assert offset_of(name, ".log") == offset


@pytest.mark.parametrize("seed", range(6))
def test_power_loss_at_every_change_of_the_disk(seed: int) -> None:
    """I5, I6, I43: each possible state of the disk opens, holds all records up to the recovery point, and accepts appends."""
    random = SeededRandom(seed)
    built = LogBuilder(SMALL)
    images: list[tuple[MemDisk, int, int, list[tuple[int, bytes]]]] = []
    written: list[tuple[int, bytes]] = []

    def take(_operation: str, _path: str) -> None:
        if random.randrange(4) == 0:
            point = built.recovery_point
            images.append((memory(built).image(random), point, min(point, 30) if is_cutting else point, list(written)))

    memory(built).on_change = take
    sequence, is_cutting = 0, False
    for step in range(40):
        batch = batch_of(2, value=b"x" * random.randrange(80), producer_id=3, producer_epoch=0, base_sequence=sequence)
        sequence += 2
        written.append((built.log.log_end_offset, b""))
        base = built.append(batch, leader_epoch=step // 9)
        written[-1] = (base, bytes(batch))
        if step % 5 == 4:
            built.log.flush()
            built.log.write_recovery_aids(0)
            built.checkpoint()
        if step == 25:
            is_cutting = True
            built.log.truncate_to(30)
            built.checkpoint()
            is_cutting = False
            del written[15:]
            sequence = 30
    assert len(images) > 20
    for disk, point, end_min, expected in images:
        judge_image(disk, point, end_min, expected)


def judge_image(disk: MemDisk, point: int, end_min: int, expected: list[tuple[int, bytes]]) -> None:
    after = LogBuilder(SMALL, disk=disk, recovery_point=point)
    log = after.log
    found = [(header.base_offset, data) for header, data in read_all(log)]
    assert log.log_end_offset >= end_min
    common = min(len(found), len(expected))
    assert [base for base, _ in found[:common]] == [base for base, _ in expected[:common]]
    assert all(data == want for (_, data), (_, want) in zip(found, expected, strict=False) if want)
    entry = log.producers.get(3)
    assert (entry.next_sequence if entry else 0) == log.log_end_offset
    kept = {path: data for path, data in disk.all_files().items() if path.endswith((".index", ".timeindex"))}
    for segment in log.segments:
        segment.rebuild_indexes()
        segment.write_indexes()
    assert {path: data for path, data in disk.all_files().items() if path in kept} == kept, "I6"
    assert after.append(batch_of(), leader_epoch=99) == log.log_end_offset - 1
    assert offsets_of(after.reopen()) == [base for base, _ in found] + [log.log_end_offset - 1]


def test_a_directory_that_kafka_wrote_without_our_files_opens() -> None:
    """The directory has only segments: no epoch file, no metadata, no snapshot."""
    built = filled()
    batches = read_all(built.log)
    built.log.close(clean=True)
    for name in names(built.disk):
        if not name.endswith(".log"):
            memory(built).remove(f"{DIRECTORY}/{name}")
    log = Log.open(built.disk, DIRECTORY, PARTITION, SMALL, now_ms=0, was_clean=True)
    assert read_all(log) == batches
    assert log.topic_id is None


def test_what_was_lost_after_a_clean_stop_is_not_taken_for_the_end() -> None:
    built = filled()
    built.log.close(clean=True)
    built.checkpoint()
    path = max(files_of(built, ".log"))
    memory(built).open(path).truncate(0)
    with pytest.raises(DamagedLogError, match=r"ends at offset \d+, and it ended at \d+ when it was closed"):
        built.open(was_clean=True)


def test_an_empty_segment_in_the_middle_is_reported() -> None:
    built = filled()
    built.log.close(clean=True)
    built.checkpoint()
    path = sorted(files_of(built, ".log"))[1]
    memory(built).open(path).truncate(0)
    (note,) = [note for note in built.open(was_clean=True).recovery_notes if "missing" in note]
    assert path in note


def test_a_torn_partition_metadata_is_reported_and_written_again() -> None:
    built = filled()
    built.log.close(clean=True)
    built.checkpoint()
    memory(built).open(f"{DIRECTORY}/partition.metadata").truncate(5)
    assert "partition.metadata names no topic" in built.open(was_clean=True).recovery_notes[0]
    assert built.reopen().recovery_notes == []


def test_i44_what_a_failed_sync_may_have_dropped_is_written_again() -> None:
    """After the failed sync the kernel treats the pages as clean, so a sync through another descriptor reports success. Then the power
    fails."""
    built = LogBuilder(log_settings(segment_bytes=3 * len(batch_of()), index_interval_bytes=1))
    disk = built.disk
    assert isinstance(disk, MemDisk)
    built.append_many(2)
    built.log.flush()
    built.checkpoint()
    built.append_many(6)
    disk.fail_next("sync", path_part=".log", count=None)
    for file in built.log.unflushed_files():
        with contextlib.suppress(DiskError):
            file.sync()
    disk.heal()
    built.log.close(clean=False)
    point = built.recovery_point
    opened = Log.open(
        disk, DIRECTORY, PARTITION, built.config, now_ms=0, was_clean=False, recovery_point=point, is_sync_doubtful=True, topic_id=TOPIC_ID
    )
    assert opened.log_end_offset == 8
    opened.flush()
    built.recovery_point = opened.recovery_point
    assert offsets_of(built.crash()) == list(range(8))


@pytest.mark.parametrize("seed", range(30))
def test_i6_what_is_appended_after_a_truncation_does_not_count_as_synced(seed: int) -> None:
    """The checkpoint from before the truncation has a higher offset. The power fails when the log has an abort marker whose index entry is
    not written."""
    built = LogBuilder()
    built.append_many(9)
    built.append(batch_of(1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    built.append_many(10)
    built.log.flush()
    built.checkpoint()
    built.log.truncate_to(11)
    built.append(marker_of(is_commit=False, producer_id=7))
    built.append_many(3)
    log = built.crash(SeededRandom(seed))
    assert log.aborted_transactions(0, 100) == ([(7, 9)] if log.log_end_offset > 11 else [])
