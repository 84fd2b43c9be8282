"""The methods of a log: append, read, roll, truncate, delete, sync, and their failures (I1, I2, I7, I16, I44)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.storage.log import Log
from ottla.wire.batch_header import check_crc, read_batch_header
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.fakes.randomness import SeededRandom
from tests.storage.log_builder import DIRECTORY, PARTITION, TOPIC_ID, LogBuilder, batch_of, marker_of, names, offsets_of, read_all


def test_append_stamps_offset_and_epoch_and_nothing_else() -> None:
    built = LogBuilder()
    first, second = batch_of(3), batch_of(2)
    original = bytes(second)
    assert built.append(first, leader_epoch=7) == 0
    assert built.append(second, leader_epoch=7) == 3
    assert built.log.log_end_offset == 5
    header = read_batch_header(second)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 7)
    assert second[16:] == original[16:] and check_crc(second, 0, len(second))
    assert [data for _, data in read_all(built.log)] == [bytes(first), bytes(second)]


def test_a_segment_has_its_indexes_from_its_first_batch_on() -> None:
    """Kafka creates the indexes with the log, and tools look for an index beside each `.log`. They are empty until the first entry is due.
    A log without a batch has none, because creating files is most of the cost of a new topic."""
    built = LogBuilder(log_settings(segment_bytes=200))
    first = {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}
    assert first & set(names(built.disk)) == {f"{0:020d}.log"}
    built.append_many(1)
    assert first <= set(names(built.disk))
    built.append_many(5)
    base = built.log.active.base_offset
    assert base > 0
    assert {f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= set(names(built.disk))
    assert built.disk.open(f"{DIRECTORY}/{base:020d}.index").size() == 0


def test_read_begins_at_the_batch_that_holds_the_offset_and_ends_at_the_bound() -> None:
    built = LogBuilder()
    sizes = [len(batch) for batch in (batch_of(3), batch_of(3), batch_of(3))]
    for _ in sizes:
        built.append(batch_of(3))
    piece = built.log.read(4, 1 << 20, end_offset=6)
    assert piece is not None and (piece.position, piece.length) == (sizes[0], sizes[1])
    piece = built.log.read(0, 1 << 20, end_offset=9)
    assert piece is not None and (piece.position, piece.length) == (0, sum(sizes))
    assert built.log.read(6, 1 << 20, end_offset=6) is None
    assert built.log.read(9, 1 << 20, end_offset=9) is None


def test_read_never_shows_a_part_of_what_lies_beyond_the_bound() -> None:
    """A bound inside a batch hides the whole batch (I24)."""
    built = LogBuilder()
    built.append(batch_of(3))
    size = built.log.size_bytes
    built.append(batch_of(3))
    piece = built.log.read(0, 1 << 20, end_offset=4)
    assert piece is not None and piece.length == size
    assert built.log.read(3, 1 << 20, end_offset=4) is None


def test_read_gives_at_least_one_whole_batch_or_exactly_the_limit() -> None:
    built = LogBuilder()
    size = len(batch_of(1))
    built.append_many(3)
    for limit, expected in [(0, size), (1, size), (size, size), (size + 5, size + 5), (3 * size, 3 * size), (1 << 30, 3 * size)]:
        piece = built.log.read(0, limit, end_offset=3)
        assert piece is not None and piece.length == expected
    assert built.log.read(0, size - 1, end_offset=3, min_one=False) is None
    assert built.log.read(0, size, end_offset=3, min_one=False) is not None


def test_read_outside_of_the_log_is_refused() -> None:
    built = LogBuilder()
    built.append_many(5)
    built.log.advance_log_start(2)
    for offset in (-1, 0, 1, 6, 1 << 40):
        with pytest.raises(ApiError) as caught:
            built.log.read(offset, 100, end_offset=5)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert built.log.read(2, 100, end_offset=5) is not None


def test_old_offsets_are_found_by_the_index_as_well_as_recent_ones() -> None:
    built = LogBuilder(log_settings(index_interval_bytes=256))
    built.append_many(1_500, 2)
    for offset in [*range(0, 3_000, 37), 2_999]:
        piece = built.log.read(offset, 1, end_offset=3_000)
        assert piece is not None
        header = read_batch_header(piece.read())
        assert header.base_offset <= offset <= header.last_offset


def test_rolls_by_size_and_names_segments_by_their_first_offset() -> None:
    size = len(batch_of(1))
    built = LogBuilder(log_settings(segment_bytes=3 * size))
    built.append_many(7)
    assert [segment.base_offset for segment in built.log.segments] == [0, 3, 6]
    assert {"00000000000000000003.log", "00000000000000000003.snapshot", "00000000000000000000.index"} <= set(names(built.disk))
    assert offsets_of(built.log) == list(range(7))
    piece = built.log.read(1, 1 << 20, end_offset=7)
    assert piece is not None and piece.length == 2 * size, "one segment at a time"


def test_rolls_by_the_age_of_the_first_batch_in_the_segment() -> None:
    built = LogBuilder(log_settings(segment_ms=100))
    for timestamp in (1_000, 1_100, 1_101, 1_150):
        built.append(batch_of(timestamp=timestamp))
    assert [segment.base_offset for segment in built.log.segments] == [0, 2]


def test_rolls_by_the_clock_when_records_have_no_timestamp() -> None:
    built = LogBuilder(log_settings(segment_ms=100))
    built.append(batch_of(timestamp=-1))
    built.append(batch_of(timestamp=-1))
    built.now_ms += 101
    built.append(batch_of(timestamp=-1))
    assert [segment.base_offset for segment in built.log.segments] == [0, 2]


def test_age_counts_after_a_reopening_too() -> None:
    built = LogBuilder(log_settings(segment_ms=100))
    built.append(batch_of(timestamp=1_000))
    built.reopen()
    built.append(batch_of(timestamp=1_101))
    assert [segment.base_offset for segment in built.log.segments] == [0, 1]


def test_rolls_when_an_index_is_full() -> None:
    built = LogBuilder(log_settings(index_interval_bytes=1, segment_index_bytes=60))
    built.append_many(12)
    assert all(len(segment.index) <= 4 for segment in built.log.segments)
    assert [segment.base_offset for segment in built.log.segments] == [0, 5, 10]


def test_rolls_before_an_offset_leaves_the_range_of_the_index() -> None:
    built = LogBuilder(log_settings(is_compacted=True))  # nothing else leaves such a gap
    far = (1 << 31) + 10
    built.log.append_as_follower(memoryview(batch_of(base_offset=0, leader_epoch=0) + batch_of(base_offset=far, leader_epoch=0)))
    assert [segment.base_offset for segment in built.log.segments] == [0, far]
    assert offsets_of(built.log) == [0, far]


def test_a_follower_writes_many_batches_across_segments() -> None:
    leader = LogBuilder()
    for number in range(20):
        leader.append(batch_of(2, timestamp=1_000 + number), leader_epoch=number // 7)
    data = b"".join(piece for _, piece in read_all(leader.log))
    follower = LogBuilder(log_settings(segment_bytes=500))
    follower.log.append_as_follower(memoryview(bytearray(data)))
    assert b"".join(piece for _, piece in read_all(follower.log)) == data
    assert len(follower.log.segments) > 3
    assert follower.log.epochs.entries() == leader.log.epochs.entries() == [(0, 0), (1, 14), (2, 28)]


def test_truncation_cuts_at_a_batch_and_forgets_everything_behind_it() -> None:
    built = LogBuilder(log_settings(segment_bytes=400, index_interval_bytes=100))
    for number in range(20):
        built.append(batch_of(2), leader_epoch=number // 5)
    before = read_all(built.log)
    built.log.truncate_to(17)  # inside the batch 16-17
    assert built.log.log_end_offset == 16
    assert read_all(built.log) == before[:8]
    assert built.log.epochs.entries() == [(0, 0), (1, 10)]
    assert built.append(batch_of(2), leader_epoch=9) == 16
    assert offsets_of(built.log)[-1] == 16


def test_truncation_to_a_segment_boundary_makes_the_segment_before_it_active_again() -> None:
    built = LogBuilder(log_settings(segment_bytes=300))
    built.append_many(9)
    bases = [segment.base_offset for segment in built.log.segments]
    built.log.truncate_to(bases[1])
    assert built.log.log_end_offset == bases[1]
    assert built.append(batch_of()) == bases[1]
    assert offsets_of(built.log) == list(range(bases[1] + 1))
    assert offsets_of(built.kill()) == list(range(bases[1] + 1))


def test_truncation_below_the_start_begins_anew() -> None:
    built = LogBuilder()
    built.append_many(5)
    built.log.truncate_fully_and_start_at(100)
    assert (built.log.log_start_offset, built.log.log_end_offset, built.log.recovery_point) == (100, 100, 100)
    assert built.append(batch_of()) == 100
    assert built.log.epochs.entries() == [(0, 100)]
    assert [name for name in names(built.disk) if name.endswith(".log")] == ["00000000000000000100.log"]


def test_a_follower_of_a_log_that_starts_within_a_batch_takes_the_whole_batch() -> None:
    leader = LogBuilder()
    leader.append(batch_of(5))
    leader.append(batch_of(2))
    data = b"".join(piece for _, piece in read_all(leader.log))
    follower = LogBuilder()
    follower.log.truncate_fully_and_start_at(3)
    follower.log.append_as_follower(memoryview(bytearray(data)))
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (3, 7)
    assert b"".join(piece for _, piece in read_all(follower.log)) == data
    with pytest.raises(ApiError):
        follower.log.read(2, 100, end_offset=7)


def test_truncation_takes_the_producers_back() -> None:
    built = LogBuilder()
    for number in range(4):
        built.append(batch_of(producer_id=5, producer_epoch=0, base_sequence=number))
    built.log.roll()
    for number in range(4, 8):
        built.append(batch_of(producer_id=5, producer_epoch=0, base_sequence=number))
    built.log.truncate_to(6)
    entry = built.log.producers.get(5)
    assert entry is not None and entry.next_sequence == 6
    built.log.truncate_to(2)
    entry = built.log.producers.get(5)
    assert entry is not None and entry.next_sequence == 2


def test_aborted_transactions_are_found_across_segments() -> None:
    built = LogBuilder()
    for number in range(3):
        built.append(batch_of(2, producer_id=number, producer_epoch=0, base_sequence=0, is_transactional=True))
        built.log.roll()
        built.append(marker_of(is_commit=number == 1, producer_id=number))
    assert built.log.log_end_offset == 9
    assert built.log.aborted_transactions(0, 9) == [(0, 0), (2, 6)]
    assert built.log.aborted_transactions(3, 9) == [(2, 6)]
    assert built.log.aborted_transactions(0, 6) == [(0, 0)]
    assert built.reopen().aborted_transactions(0, 9) == [(0, 0), (2, 6)]
    built.log.truncate_to(8)
    assert built.log.aborted_transactions(0, 9) == [(0, 0)]


def test_a_damaged_index_of_aborted_transactions_is_made_again() -> None:
    built = LogBuilder()
    for number in range(2):
        built.append(batch_of(producer_id=number, producer_epoch=0, base_sequence=0, is_transactional=True))
        built.append(marker_of(is_commit=False, producer_id=number))
    built.reopen()
    assert isinstance(built.disk, MemDisk)
    path = f"{DIRECTORY}/00000000000000000000.txnindex"
    good = built.disk.read_file(path)
    built.disk.write_file(path, good[:-3])
    assert built.open(was_clean=True).aborted_transactions(0, 4) == [(0, 0), (1, 2)]
    assert built.disk.read_file(path) == good
    assert any("txnindex" in note for note in built.log.recovery_notes)


def test_retention_never_passes_the_high_watermark() -> None:
    """I7."""
    built = LogBuilder(log_settings(segment_bytes=300, retention_ms=10))
    built.append_many(9)
    assert built.log.delete_expired(10_000_000, 0) == []
    bases = [segment.base_offset for segment in built.log.segments]
    paths = built.log.delete_expired(10_000_000, bases[2])
    assert built.log.log_start_offset == bases[2] == built.log.segments[0].base_offset
    assert paths and all(path.endswith(".deleted") and built.disk.exists(path) for path in paths)
    assert offsets_of(built.log) == list(range(bases[2], 9))


def test_everything_may_expire_and_offsets_go_on() -> None:
    built = LogBuilder(log_settings(retention_ms=10))
    built.append_many(4)
    built.log.delete_expired(10_000_000, 4)
    assert (built.log.log_start_offset, built.log.log_end_offset, built.log.size_bytes) == (4, 4, 0)
    assert built.append(batch_of()) == 4
    assert offsets_of(built.reopen()) == [4]


def test_a_slice_outlives_the_segment_that_it_came_from() -> None:
    built = LogBuilder(log_settings(retention_ms=10))
    batch = batch_of()
    built.append(batch)
    piece = built.log.read(0, 1 << 20, end_offset=1)
    for path in built.log.delete_expired(10_000_000, 1):
        built.disk.remove(path)
    built.log.close(clean=True)
    assert piece is not None and piece.read() == bytes(batch)


def test_what_was_marked_flushed_survives_power_loss() -> None:
    """I5: more records were appended while the group commit was syncing."""
    built = LogBuilder(log_settings(segment_bytes=300))
    built.append_many(7)
    end, files = built.log.log_end_offset, built.log.unflushed_files()
    built.append_many(5)
    for file in files:
        file.sync()
    built.log.mark_flushed(end)
    assert built.log.recovery_point == 7
    built.checkpoint()
    assert offsets_of(built.crash()) [:7] == list(range(7))
    assert 7 <= built.log.log_end_offset <= 12


def test_a_round_of_syncs_does_not_count_for_what_replaced_its_batches() -> None:
    built = LogBuilder()
    built.append_many(10)
    end, files = built.log.log_end_offset, built.log.unflushed_files()
    for file in files:
        file.sync()
    built.log.truncate_to(4)
    built.append_many(10)
    built.log.mark_flushed(end)
    assert built.log.recovery_point == 4


def test_nothing_to_sync_when_all_is_durable() -> None:
    built = LogBuilder()
    built.append_many(3)
    built.log.flush()
    assert built.log.unflushed_files() == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("written", [0, 1, 40])
def test_a_failed_append_changes_nothing(number: int, written: int) -> None:
    """I44: the failed append is not acknowledged, leaves no bytes, and the next append gets the same offset."""
    built = LogBuilder()
    built.append_many(3)
    assert isinstance(built.disk, MemDisk)
    built.disk.fail_next("write", number, written_bytes=written, path_part=".log")
    with pytest.raises(StorageError):
        built.append(batch_of())
    assert (built.log.log_end_offset, built.log.is_broken) == (3, False)
    assert built.append(batch_of()) == 3
    assert offsets_of(built.log) == [0, 1, 2, 3]
    assert offsets_of(built.kill()) == [0, 1, 2, 3]


def test_a_failed_append_that_cannot_be_cut_breaks_the_log_until_it_is_opened_anew() -> None:
    built = LogBuilder()
    built.append_many(3)
    assert isinstance(built.disk, MemDisk)
    built.disk.fail_next("write", written_bytes=30, path_part=".log")
    built.disk.fail_next("truncate")
    for _ in range(2):
        with pytest.raises(StorageError):
            built.append(batch_of())
    assert built.log.is_broken and built.log.log_end_offset == 3
    assert offsets_of(built.kill()) == [0, 1, 2]


@pytest.mark.parametrize("operation", ["open", "write", "rename", "truncate"])
def test_a_roll_that_fails_at_any_step_changes_nothing(operation: str) -> None:
    built = LogBuilder(log_settings(index_interval_bytes=10))
    built.append_many(5)
    assert isinstance(built.disk, MemDisk)
    for after in range(6):
        built.disk.fail_next(operation, after=after)
        try:
            built.log.roll()
        except StorageError:
            assert (built.log.log_end_offset, len(built.log.segments)) == (5 + after, 1)
            assert [name for name in names(built.disk) if name.endswith(".log")] == ["00000000000000000000.log"]
            built.append(batch_of())
        else:
            break
        finally:
            built.disk.heal()
    built.append(batch_of())
    end = built.log.log_end_offset
    assert offsets_of(built.log) == offsets_of(built.kill()) == list(range(end))


def test_another_topic_of_the_same_name_is_refused() -> None:
    """I41."""
    built = LogBuilder()
    built.log.close(clean=True)
    with pytest.raises(StorageError, match=r"another topic"):
        Log.open(built.disk, DIRECTORY, PARTITION, built.config, now_ms=0, was_clean=True, topic_id=bytes(16))
    assert Log.open(built.disk, DIRECTORY, PARTITION, built.config, now_ms=0, was_clean=True).topic_id == TOPIC_ID


def test_delete_renames_the_directory_as_kafka_does() -> None:
    built = LogBuilder()
    built.append_many(2)
    path = built.log.delete()
    assert path == f"/data/orders-3.{TOPIC_ID.hex()}-delete"
    assert built.disk.exists(path) and not built.disk.exists(DIRECTORY)
    built.recovery_point = 0
    built.open(was_clean=False)
    assert built.log.delete() == f"/data/orders-3.{TOPIC_ID.hex()}1-delete"


def test_settings_may_change_while_the_log_is_open() -> None:
    built = LogBuilder()
    built.append_many(4)
    built.log.configure(log_settings(segment_bytes=1))
    built.append_many(2)
    assert [segment.base_offset for segment in built.log.segments] == [0, 4, 5]


class LogMachine(RuleBasedStateMachine):
    """Compares a real log on a disk in memory with a list of (base offset, bytes)."""

    @initialize(segment=st.sampled_from([200, 700, 1 << 20]), interval=st.sampled_from([1, 200, 4096]))
    def start(self, segment: int, interval: int) -> None:
        self.built = LogBuilder(log_settings(segment_bytes=segment, index_interval_bytes=interval, retention_ms=1 << 40))
        self.model: list[tuple[int, bytes]] = []
        self.end = 0
        self.log_start = 0
        self.clock = 1_000
        self.epoch = 0

    @rule(count=st.integers(1, 4), size=st.integers(0, 300), later=st.integers(-50, 50), is_new_epoch=st.booleans())
    def append(self, count: int, size: int, later: int, is_new_epoch: bool) -> None:
        self.clock += later
        self.epoch += is_new_epoch
        batch = batch_of(count, value=b"x" * size, timestamp=self.clock)
        assert self.built.append(batch, leader_epoch=self.epoch) == self.end
        self.model.append((self.end, bytes(batch)))
        self.end += count

    @rule()
    def roll(self) -> None:
        self.built.log.roll()

    @rule()
    def flush(self) -> None:
        self.built.log.flush()
        assert self.built.log.recovery_point == self.end

    @rule()
    def checkpoint(self) -> None:
        self.built.log.write_recovery_aids(0)
        self.built.checkpoint()

    @precondition(lambda self: self.end > self.log_start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.end))
        self.built.log.truncate_to(offset)
        self.built.checkpoint()
        self.model = [(base, batch) for base, batch in self.model if read_batch_header(batch).next_offset <= offset]
        self.end = self.built.log.log_end_offset
        if not self.model and self.end == self.built.log.log_start_offset:
            self.log_start = self.end  # the log start was inside the removed batch
        assert self.end <= offset and (not self.model or self.end == read_batch_header(self.model[-1][1]).next_offset)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.end))
        self.built.log.advance_log_start(self.log_start)
        for path in self.built.log.delete_expired(0, self.end):
            self.built.disk.remove(path)
        self.built.checkpoint()
        self.model = [(base, batch) for base, batch in self.model if read_batch_header(batch).next_offset > self.log_start]

    @rule()
    def reopen(self) -> None:
        self.built.reopen()
        assert self.built.log.recovery_notes == []

    @rule()
    def kill(self) -> None:
        self.built.kill()

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        durable = self.built.recovery_point
        self.built.crash(SeededRandom(seed))
        end = self.built.log.log_end_offset
        assert durable <= end <= self.end, "I5"
        self.end = end
        self.model = [(base, batch) for base, batch in self.model if read_batch_header(batch).next_offset <= end]

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        log = self.built.log
        assert (log.log_start_offset, log.log_end_offset) == (self.log_start, self.end)
        assert log.log_start_offset <= max(log.recovery_point, log.log_start_offset) <= log.log_end_offset
        assert [(header.base_offset, data) for header, data in read_all(log)] == self.model
        assert all(segment.size <= max(segment.bytes_max, segment.tail_floor, 1 << 31) for segment in log.segments)


TestLogMachine = LogMachine.TestCase
