"""The copy of a log in another directory: it has the same batches and is truncated with the log. After any crash one of the two has the
log's name."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.storage.future_log import COPIED_FILE, FutureLog, common_end, finish_replacement, is_complete
from ottla.storage.log import Log
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.fakes.randomness import SeededRandom
from tests.storage.log_builder import PARTITION, ROOT, TOPIC_ID, LogBuilder, batch_of, marker_of, read_all

OTHER = "/other"
COPY = f"{OTHER}/{PARTITION}.{'0' * 32}-future"
LENGTH_AT = 8
SMALL = log_settings(segment_bytes=400)


def built(config: LogConfig = SMALL) -> LogBuilder:
    return LogBuilder(config, MemDisk(ROOT, OTHER))


def copy_of(source: LogBuilder, directory: str = COPY, *, was_clean: bool = False) -> FutureLog:
    copy = Log.open(source.disk, directory, PARTITION, source.config, now_ms=0, was_clean=was_clean, topic_id=TOPIC_ID)
    return FutureLog(source.log, copy)


def copy_all(future: FutureLog, bytes_max: int = 150) -> int:
    pieces = 0
    while (piece := future.next_piece(bytes_max)) is not None:
        future.append(piece[0], piece[1].read())
        pieces += 1
    return pieces


def content(log: Log) -> list[tuple[int, bytes]]:
    return [(header.base_offset, data) for header, data in read_all(log)]


def test_how_much_is_left_counts_all_segments() -> None:
    source = built()
    source.append_many(20)
    future = copy_of(source)
    left = source.log.size_bytes
    assert len(source.log.segments) > 2
    while (piece := future.next_piece(150)) is not None:
        in_active = future.copy.log_end_offset >= source.log.active.base_offset
        assert future.is_left_at_most(left) == in_active and not future.is_left_at_most(min(left, source.log.active.size) - 1)
        future.append(piece[0], piece[1].read())
        left = source.log.size_bytes - future.copy.size_bytes
    assert future.is_left_at_most(0)


def some_transactions(source: LogBuilder) -> None:
    for number in range(6):
        batch = batch_of(2, producer_id=7, producer_epoch=0, base_sequence=2 * number, is_transactional=True)
        source.append(batch, leader_epoch=number // 2)
        source.append(marker_of(is_commit=number % 2 == 0, producer_id=7), leader_epoch=number // 2)


def test_a_copy_has_the_same_batches_epochs_and_aborted_transactions() -> None:
    source = built()
    some_transactions(source)
    future = copy_of(source)
    assert future.lag == source.log.log_end_offset
    assert copy_all(future) > 3
    assert content(future.copy) == content(source.log) and future.lag == 0
    assert future.copy.epochs.entries() == source.log.epochs.entries()
    end = source.log.log_end_offset
    assert future.copy.aborted_transactions(0, end) == source.log.aborted_transactions(0, end) != []


def test_the_log_goes_on_in_the_other_directory_as_the_same_object() -> None:
    source = built()
    some_transactions(source)
    before, producers = content(source.log), source.log.producers
    slice_ = source.log.read(0, 1000, end_offset=source.log.log_end_offset)
    future = copy_of(source)
    old = future.replace(100)
    log = source.log
    assert log.directory == f"{OTHER}/{PARTITION}" and old.startswith(f"{ROOT}/{PARTITION}.") and old.endswith("-delete")
    assert content(log) == before and log.producers is producers and log.recovery_point == log.log_end_offset
    assert slice_ is not None and slice_.read(), "a slice that was handed out before still reads"
    source.append(batch_of(producer_id=7, producer_epoch=0, base_sequence=12, is_transactional=True), leader_epoch=3)
    log.roll()
    log.close(clean=True)
    again = Log.open(source.disk, log.directory, PARTITION, SMALL, now_ms=0, was_clean=True, recovery_point=log.recovery_point)
    assert content(again)[:-1] == before and again.epochs.entries() == log.epochs.entries()
    assert again.producers.snapshot() == producers.snapshot()


def test_i1_what_the_log_loses_its_copy_has_lost_before() -> None:
    source = built()
    source.append_many(20)
    future = copy_of(source)
    copy_all(future)
    source.log.truncate_to(7)
    assert content(future.copy) == content(source.log)
    for _ in range(9):
        source.append(batch_of(value=b"w"), leader_epoch=3)
    copy_all(future)
    assert content(future.copy) == content(source.log)
    source.log.truncate_fully_and_start_at(3)
    source.append(batch_of(value=b"x"), leader_epoch=4)
    copy_all(future)
    assert content(future.copy) == content(source.log) and future.copy.log_start_offset == 3


def test_a_piece_that_was_read_before_a_cut_is_not_appended_after_it() -> None:
    source = built()
    source.append_many(10)
    future = copy_of(source)
    piece = future.next_piece(10_000)
    assert piece is not None
    data = piece[1].read()
    source.log.truncate_to(2)
    source.append(batch_of(value=b"w"), leader_epoch=3)
    future.append(piece[0], data)
    copy_all(future)
    assert content(future.copy) == content(source.log)


@pytest.mark.parametrize("at", [LENGTH_AT, 30])
def test_a_damaged_batch_of_the_log_is_refused(at: int) -> None:
    source = built()
    source.append_many(10)
    future = copy_of(source)
    piece = future.next_piece(10_000)
    assert piece is not None
    data = bytearray(piece[1].read())
    data[at : at + 4] = bytes(4)
    with pytest.raises(ApiError) as refused:
        future.append(piece[0], bytes(data))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE and future.copy.log_end_offset == 0


def test_a_failure_to_cut_the_copy_is_not_the_logs() -> None:
    source = built(log_settings())
    source.append_many(4)
    future = copy_of(source)
    copy_all(future)
    assert isinstance(source.disk, MemDisk)
    source.disk.fail_next("truncate", path_part=OTHER)
    source.log.truncate_to(2)
    assert source.log.log_end_offset == 2 and isinstance(future.error, StorageError)


def test_a_log_start_in_the_middle_of_a_batch_moves_with_the_log() -> None:
    source = built()
    source.append_many(6, 5)
    source.log.advance_log_start(12)
    source.log.delete_expired(0, 30)
    future = copy_of(source)
    copy_all(future)
    assert future.copy.log_start_offset == 12 and content(future.copy)[-1] == content(source.log)[-1]
    source.log.advance_log_start(21)
    future.replace(1000)
    assert source.log.log_start_offset == 21
    source.log.close(clean=True)
    again = Log.open(source.disk, source.log.directory, PARTITION, SMALL, now_ms=0, was_clean=False, log_start_offset=21)
    assert content(again) == content(source.log)


def test_a_copy_that_lost_the_logs_start_begins_anew_there() -> None:
    source = built()
    source.append_many(20)
    future = copy_of(source)
    piece = future.next_piece(200)
    assert piece is not None
    future.append(piece[0], piece[1].read())
    source.log.advance_log_start(15)
    copy_all(future)
    assert content(future.copy) == content(source.log) and future.copy.log_start_offset == 15


def test_an_empty_log_keeps_its_place_and_its_producers() -> None:
    source = built()
    source.append(batch_of(3, producer_id=7, producer_epoch=0, base_sequence=0))
    source.log.roll()
    source.log.advance_log_start(3)
    source.log.delete_expired(0, 3)
    copy_of(source).replace(1000)
    assert (source.log.log_start_offset, source.log.log_end_offset) == (3, 3)
    source.log.close(clean=True)
    again = Log.open(
        source.disk, source.log.directory, PARTITION, SMALL, now_ms=0, was_clean=True, recovery_point=3, log_start_offset=3
    )
    assert again.producers.snapshot() == source.log.producers.snapshot() and again.log_end_offset == 3


@pytest.mark.parametrize(("lost", "shared"), [(0, 12), (3, 9), (12, 0)])
def test_a_copy_that_outlived_the_tail_of_its_log_is_cut(lost: int, shared: int) -> None:
    source = built()
    for number in range(12):
        source.append(batch_of(), leader_epoch=number // 4)
    future = copy_of(source)
    copy_all(future)
    future.close()
    source.log.truncate_to(12 - lost)
    assert common_end(source.log, future.copy) == shared
    for _ in range(lost):
        source.append(batch_of(value=b"w"), leader_epoch=5)
    resumed = FutureLog(source.log, future.copy)
    assert resumed.copy.log_end_offset == shared
    copy_all(resumed)
    assert content(resumed.copy) == content(source.log)


def test_a_log_with_gaps_is_recovered_whole_after_it_was_copied() -> None:
    """Compaction leaves gaps between batches. Between the segments of the copy there must be no gap."""
    source = built(log_settings(segment_bytes=100))
    data = b""
    for offset in range(0, 60, 4):
        data += bytes(batch_of(base_offset=offset, leader_epoch=0))
    source.log.append_as_follower(memoryview(data))
    whole = content(source.log)
    assert len(source.log.segments) > 3
    source.log.flush()
    again = Log.open(source.disk, source.log.directory, PARTITION, source.config, now_ms=0, was_clean=False, recovery_point=0)
    assert content(again) == whole, again.recovery_notes


@pytest.mark.parametrize("seed", range(12))
def test_i5_after_a_power_failure_one_of_the_two_is_there_with_all_that_was_synced(seed: int) -> None:
    source = built()
    assert isinstance(source.disk, MemDisk)
    some_transactions(source)
    source.log.flush()
    synced = content(source.log)
    source.append(batch_of(3), leader_epoch=2)
    future = copy_of(source)
    random = SeededRandom(seed)
    images = list[MemDisk]()
    source.disk.on_change = lambda _operation, _path: images.append(source.disk.image(random))
    future.replace(200)
    source.disk.on_change = None
    assert len(images) > 10
    for image in images:
        assert content(found_after(image))[: len(synced)] == synced


def found_after(disk: MemDisk) -> Log:
    """Returns the log that a start after a crash opens."""
    here, there = f"{ROOT}/{PARTITION}", f"{OTHER}/{PARTITION}"
    if not disk.exists(here) and not disk.exists(there):
        (copy,) = [name for name in disk.listdir(OTHER) if name.endswith("-future")]
        assert is_complete(disk, f"{OTHER}/{copy}")
        finish_replacement(disk, f"{OTHER}/{copy}", there)
    assert disk.exists(here) != disk.exists(there)
    path = here if disk.exists(here) else there
    assert not disk.exists(f"{path}/{COPIED_FILE}") or path == there
    return Log.open(disk, path, PARTITION, SMALL, now_ms=0, was_clean=False)


@pytest.mark.parametrize(("path_part", "after"), [(f"{ROOT}/{PARTITION}", 0), *((COPY, number) for number in range(4))])
def test_a_failed_rename_leaves_the_log_or_a_complete_copy(path_part: str, after: int) -> None:
    source = built(log_settings())
    source.append_many(4)
    whole = content(source.log)
    future = copy_of(source)
    assert isinstance(source.disk, MemDisk)
    source.disk.fail_next("rename", path_part=path_part, after=after)
    with pytest.raises(StorageError):
        future.replace(1000)
    source.disk.heal()
    assert source.disk.exists(f"{ROOT}/{PARTITION}") == (after < 3), "the copy's own name is the last one"
    assert content(found_after(source.disk)) == whole
