"""Compares compaction with a dict: each key has its last value at its old offset, with any transactions, crashes and rounds (I6, I8, I24,
I43)."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random

import pytest

from ottla.base.errors import StorageError
from ottla.base.log_config import LogConfig
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.replication.high_watermark import move_high_watermark
from ottla.replication.partition import Partition
from ottla.storage.compaction_plan import PRODUCERS_PER_STEP, install, plan_compaction, plan_in_steps
from ottla.storage.log import Log
from ottla.storage.segment_rewriter import CompactionJob, CompactionResult, compact, short_key
from ottla.wire.records import CODEC_ZSTD, CONTROL_ABORT, BatchHeader, Record, encode_batch, iter_batches, read_control_record, read_records
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings

KEY = TopicPartition("accounts", 0)
DIRECTORY = f"/data/{KEY}"
RETENTION = 1_000
CONFIG = log_settings(
    is_compacted=True,
    is_deleted=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION,
    segment_bytes=1 << 20,
    segment_ms=1 << 40,
)


def open_log(disk: MemDisk, config: LogConfig = CONFIG, *, was_clean: bool = False) -> Log:
    return Log.open(disk, DIRECTORY, KEY, config, now_ms=0, was_clean=was_clean)


def leader(log: Log) -> Partition:
    partition = Partition(log, broker_id=1)
    partition.become_leader(leader_epoch=max(0, log.epochs.latest), partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    return partition


@pytest.fixture
def disk() -> MemDisk:
    return MemDisk("/data")


@pytest.fixture
def partition(disk: MemDisk) -> Partition:
    return leader(open_log(disk))


def put(
    partition: Partition, *pairs: tuple[str, str | None], codec: int = 0, producer: tuple[int, int] | None = None, sequence: int = 0
) -> int:
    """Appends (key, value) pairs; `producer` (id, epoch) writes them in a transaction."""
    records = [Record(0, 5, key.encode(), None if value is None else value.encode()) for key, value in pairs]
    if producer is None:
        batch = encode_batch(records, codec=codec)
    else:
        batch = encode_batch(
            records, codec=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, is_transactional=True
        )
    return partition.require_leading().append(batch, acks=1, now_ms=5).base_offset


def plan(partition: Partition, *, now_ms: int = 10, first_dirty: int = 0) -> CompactionJob | None:
    return plan_compaction(partition.log, first_dirty_offset=first_dirty, last_stable_offset=partition.last_stable_offset, now_ms=now_ms)


def run(partition: Partition, *, now_ms: int = 10, first_dirty: int = 0) -> CompactionResult:
    """Runs a whole round over all segments except the active one."""
    partition.log.roll()
    job = plan(partition, now_ms=now_ms, first_dirty=first_dirty)
    assert job is not None
    result = compact(partition.log.disk, job)
    assert result is not None
    retired = install(partition.log, job, result)
    assert retired
    for path in retired:
        partition.log.disk.remove(path)
    return result


def batches(partition: Partition, *, isolation: int = 0) -> list[tuple[BatchHeader, bytes, list[tuple[int, int]]]]:
    """Returns every batch that a consumer gets, with the aborted transactions in the same answer."""
    found = []
    offset = partition.log.log_start_offset
    while True:
        read = partition.read(offset, 1 << 20, isolation=isolation)
        if read.slice is None:
            return found
        data = read.slice.read()
        for position, header in iter_batches(data):
            found.append((header, data[position : position + header.size_bytes], read.aborted or []))
            offset = header.next_offset


def records(partition: Partition) -> dict[int, tuple[str, str | None]]:
    """Returns the records that a reader of committed data gets, by offset. It drops aborted records as clients do."""
    seen = {}
    running: set[int] = set()
    begun: set[tuple[int, int]] = set()
    for header, data, aborted in batches(partition, isolation=READ_COMMITTED):
        for entry in aborted:
            if entry[1] <= header.last_offset and entry not in begun:
                begun.add(entry)
                running.add(entry[0])
        if header.is_control:
            control = read_control_record(data)
            if control is not None and control.kind == CONTROL_ABORT:
                running.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in running):
            for record in read_records(data):
                seen[record.offset] = ((record.key or b"").decode(), None if record.value is None else record.value.decode())
    return seen


def table(seen: dict[int, tuple[str, str | None]]) -> dict[str, str]:
    folded: dict[str, str | None] = {}
    for offset in sorted(seen):
        folded[seen[offset][0]] = seen[offset][1]
    return {key: value for key, value in folded.items() if value is not None}


def kinds(partition: Partition) -> list[str]:
    """Returns the kinds of the log's batches as letters: d(ata), e(mpty), m(arker)."""
    return ["m" if header.is_control else "d" if header.record_count else "e" for header, _, _ in batches(partition)]


def test_i8_the_last_value_of_each_key_stays_at_its_offset(partition: Partition) -> None:
    put(partition, ("a", "1"), ("b", "1"))
    put(partition, ("a", "2"))
    put(partition, ("c", "1"))
    result = run(partition)
    assert records(partition) == {1: ("b", "1"), 2: ("a", "2"), 3: ("c", "1")}
    assert result.end_offset == 4 and result.bytes_after < result.bytes_before
    assert partition.log.log_end_offset == 4


def test_what_comes_later_replaces_what_was_clean(partition: Partition) -> None:
    put(partition, ("a", "1"), ("b", "1"))
    first = run(partition)
    put(partition, ("a", "2"))
    run(partition, first_dirty=first.end_offset)
    assert records(partition) == {1: ("b", "1"), 2: ("a", "2")}


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_batches_keep_their_codec(partition: Partition, codec: int) -> None:
    put(partition, ("a", "1"), ("b", "1"), codec=codec)
    put(partition, ("a", "2"), codec=codec)
    run(partition)
    assert {header.codec for header, _, _ in batches(partition)} == {codec}
    assert records(partition) == {1: ("b", "1"), 2: ("a", "2")}


def test_the_active_segment_is_not_touched(partition: Partition) -> None:
    put(partition, ("a", "1"))
    assert plan(partition) is None
    partition.log.roll()
    put(partition, ("a", "2"))
    job = plan(partition)
    assert job is not None and [segment.base_offset for segment in job.segments] == [0]


def test_kip_534_a_tombstone_stays_until_its_delete_horizon(partition: Partition) -> None:
    put(partition, ("a", "1"))
    put(partition, ("a", None))
    put(partition, ("end", "x"))
    run(partition, now_ms=10)
    assert records(partition) == {1: ("a", None), 2: ("end", "x")}
    horizons = [header.delete_horizon_ms for header, _, _ in batches(partition)]
    assert horizons == [10 + RETENTION, None]
    put(partition, ("b", "1"))
    run(partition, now_ms=9 + RETENTION)
    assert 1 in records(partition)
    put(partition, ("b", "2"))
    run(partition, now_ms=10 + RETENTION)
    assert records(partition) == {2: ("end", "x"), 4: ("b", "2")}


def test_the_last_batch_of_a_round_stays_as_a_header(partition: Partition) -> None:
    put(partition, ("a", "1"))
    put(partition, ("a", None))
    run(partition, now_ms=10)
    put(partition, ("b", "1"))
    partition.log.roll()
    run(partition, now_ms=10 + RETENTION)
    assert table(records(partition)) == {"b": "1"}
    put(partition, ("b", None))
    run(partition, now_ms=20)
    put(partition, ("z", "1"))
    assert partition.log.read(0, 1 << 20, end_offset=4) is not None


def test_i24_aborted_records_go_and_their_marker_follows_after_its_horizon(partition: Partition) -> None:
    put(partition, ("a", "1"))
    put(partition, ("a", "bad"), producer=(7, 0))
    partition.require_leading().write_marker(7, 1, 1, False, 5, 2)
    put(partition, ("a", "good"), producer=(7, 1))
    partition.require_leading().write_marker(7, 2, 1, True, 5, 2)
    put(partition, ("z", "1"), producer=(7, 2))
    partition.require_leading().write_marker(7, 3, 1, True, 5, 2)
    partition.log.producers.clear()
    run(partition, now_ms=10)
    assert records(partition) == {3: ("a", "good"), 5: ("z", "1")}
    assert kinds(partition) == ["m", "d", "m", "d", "m"], "a marker outlives its records by a round"
    put(partition, ("y", "1"))
    run(partition, now_ms=20)
    assert kinds(partition) == ["m", "d", "m", "d", "m", "d"], "and then by its delete horizon"
    put(partition, ("y", "2"))
    run(partition, now_ms=20 + RETENTION)
    assert kinds(partition) == ["d", "m", "d", "m", "d"]
    assert records(partition) == {3: ("a", "good"), 5: ("z", "1"), 8: ("y", "2")}


def test_i24_an_abort_marker_may_stand_in_the_active_segment(partition: Partition) -> None:
    put(partition, ("a", "1"))
    put(partition, ("a", "bad"), producer=(7, 0))
    partition.log.roll()
    partition.require_leading().write_marker(7, 0, 1, False, 5)
    job = plan(partition)
    assert job is not None
    result = compact(partition.log.disk, job)
    assert result is not None and install(partition.log, job, result)
    assert records(partition) == {0: ("a", "1")}


def test_an_open_transaction_stops_compaction_before_it(partition: Partition) -> None:
    put(partition, ("a", "1"))
    partition.log.roll()
    put(partition, ("a", "2"), producer=(7, 0))
    partition.log.roll()
    job = plan(partition)
    assert job is not None and [segment.base_offset for segment in job.segments] == [0]
    assert records(partition) == {0: ("a", "1")}
    partition.require_leading().write_marker(7, 0, 1, False, 5)
    run(partition)
    assert records(partition) == {0: ("a", "1")}, "the aborted value has replaced nothing"


def test_i20_i21_the_log_alone_restores_producers_after_compaction(disk: MemDisk, partition: Partition) -> None:
    for number in range(7):
        batch = encode_batch([Record(0, 5, b"a", b"%d" % number)], producer_id=7, producer_epoch=2, base_sequence=number)
        partition.require_leading().append(batch, acks=1, now_ms=5)
    put(partition, ("b", "bad"), producer=(8, 0))
    partition.require_leading().write_marker(8, 5, 1, False, 5, 2)
    put(partition, ("a", "last"))
    run(partition)
    # The first round takes the records, the second gives their marker a horizon, and the third would take the marker.
    for number in range(2, 5):
        put(partition, ("c", str(number)))
        run(partition, now_ms=10 + 2 * number * RETENTION)
    assert "e" in kinds(partition)
    disk_names = [name for name in disk.listdir(DIRECTORY) if name.endswith(".snapshot")]
    for name in disk_names:
        disk.remove(f"{DIRECTORY}/{name}")
    reopened = open_log(disk)
    entry, fenced = reopened.producers.get(7), reopened.producers.get(8)
    assert entry is not None and entry.epoch == 2 and [batch.first_sequence for batch in entry.batches] == [2, 3, 4, 5, 6]
    assert [batch.fingerprint for batch in entry.batches] == [-1] * 5, "the bytes are not the client's any more"
    assert fenced is not None and fenced.epoch == 5


def test_a_log_of_many_producers_is_planned_in_steps(partition: Partition) -> None:
    for number in range(2_100):
        batch = encode_batch([Record(0, 5, b"a", b"%d" % number)], producer_id=number, producer_epoch=0, base_sequence=0)
        partition.require_leading().append(batch, acks=1, now_ms=5)
    partition.log.roll()
    steps = plan_in_steps(partition.log, first_dirty_offset=0, last_stable_offset=partition.last_stable_offset, now_ms=10)
    count, job = 0, None
    while job is None:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            job = end.value
    assert count >= 2_100 // PRODUCERS_PER_STEP and len(job.kept_batches) == 2 * 2_100


def test_segments_are_merged_and_split_by_size(disk: MemDisk) -> None:
    partition = leader(open_log(disk))
    for number in range(12):
        put(partition, (f"k{number}", "x" * 100))
        partition.log.roll()
    run(partition)
    assert len(partition.log.segments) == 2
    partition.log.configure(log_settings(is_compacted=True, min_cleanable_dirty_ratio=0.0, segment_bytes=600))
    put(partition, ("k0", "y"))
    result = run(partition)
    assert len(result.bases) > 2 and list(result.bases) == [segment.base_offset for segment in partition.log.segments[:-1]]
    assert table(records(partition)) == {"k0": "y", **{f"k{number}": "x" * 100 for number in range(1, 12)}}


def test_a_round_takes_no_more_keys_than_it_may(partition: Partition) -> None:
    for number in range(10):
        put(partition, (f"k{number}", "1"), (f"k{number}", "2"))
    put(partition, ("k0", "3"))
    partition.log.roll()
    job = plan(partition)
    assert job is not None
    done, rounds = 0, 0
    while done < partition.log.active.base_offset:
        small = plan(partition, first_dirty=done)
        assert small is not None
        result = compact(partition.log.disk, type(job)(**{**{name: getattr(small, name) for name in job.__slots__}, "keys_max": 4}))
        assert result is not None and result.end_offset > done
        assert install(partition.log, small, result) is not None
        done, rounds = result.end_offset, rounds + 1
    assert rounds > 2
    assert table(records(partition)) == {"k0": "3", **{f"k{number}": "2" for number in range(1, 10)}}
    assert len(records(partition)) == 10


def test_a_batch_of_more_keys_than_a_round_may_take_is_compacted_in_several_rounds(partition: Partition) -> None:
    put(partition, *((f"k{number}", "1") for number in range(10)))
    put(partition, *((f"k{number}", "2") for number in range(9)))
    partition.log.roll()
    done = 0
    while done < partition.log.active.base_offset:
        job = plan(partition, first_dirty=done)
        assert job is not None
        result = compact(partition.log.disk, replace(job, keys_max=4))
        assert result is not None and result.end_offset > done
        assert install(partition.log, job, result) is not None
        done = result.end_offset
    assert table(records(partition)) == {"k9": "1", **{f"k{number}": "2" for number in range(9)}}
    assert len(records(partition)) == 10


def test_i46_memory_is_bounded_by_the_bytes_of_a_batch_not_by_its_records(partition: Partition) -> None:
    count = 20_000
    put(partition, *[("k", "v")] * count, codec=CODEC_ZSTD)
    put(partition, ("k", None))
    partition.log.roll()
    job = plan(partition)
    assert job is not None
    tracemalloc.start()
    result = compact(partition.log.disk, job)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result is not None and result.end_offset == count + 1
    assert peak_bytes < 60 * count, "an object for each record takes more than two hundred bytes"


def test_i46_a_batch_that_unpacks_to_too_much_stays_and_is_named(disk: MemDisk, partition: Partition) -> None:
    put(partition, ("a", "1" * 5_000), codec=CODEC_ZSTD)
    put(partition, ("a", "2"), ("b", "1"))
    put(partition, ("b", "2"))
    partition.log.configure(replace(CONFIG, decompressed_bytes_max=1_000))
    result = run(partition)
    assert result.unread_batches == 1
    assert result.unread_reason == "offset 0: a batch unpacks to more than 1000 bytes"
    assert records(partition) == {0: ("a", "1" * 5_000), 1: ("a", "2"), 3: ("b", "2")}


def test_long_keys_are_distinguished() -> None:
    assert short_key(b"k" * 15) == b"k" * 15
    assert len(short_key(b"k" * 16)) == 16 and short_key(b"k" * 16) != short_key(b"k" * 17)


# When


def due(partition: Partition, config: LogConfig, *, first_dirty: int, now_ms: int = 100) -> bool:
    partition.log.configure(config)
    return plan(partition, first_dirty=first_dirty, now_ms=now_ms) is not None


def test_a_log_is_due_when_enough_of_it_is_dirty(partition: Partition) -> None:
    for number in range(4):
        put(partition, ("a", str(number)))
        partition.log.roll()
    half = log_settings(is_compacted=True, min_cleanable_dirty_ratio=0.5)
    assert due(partition, half, first_dirty=1) and not due(partition, half, first_dirty=2)
    assert not due(partition, log_settings(is_compacted=False), first_dirty=0)
    assert due(partition, half, first_dirty=99), "a checkpoint beyond the log is of another log"
    assert not due(partition, half, first_dirty=4)


def test_max_lag_makes_due_and_min_lag_holds_back(partition: Partition) -> None:
    for number in range(4):
        put(partition, ("a", str(number)))
        partition.log.roll()
    lag = log_settings(is_compacted=True, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=50)
    assert due(partition, lag, first_dirty=3, now_ms=56) and not due(partition, lag, first_dirty=3, now_ms=55)
    young = log_settings(is_compacted=True, min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=50)
    assert due(partition, young, first_dirty=0, now_ms=55) and not due(partition, young, first_dirty=0, now_ms=54)


# Beside it


def test_readers_and_writers_go_on_meanwhile(partition: Partition) -> None:
    put(partition, ("a", "1"), ("b", "1"))
    put(partition, ("a", "2"))
    partition.log.roll()
    before = partition.read(0, 1 << 20).slice
    assert before is not None
    expected = before.read()
    job = plan(partition)
    assert job is not None
    put(partition, ("b", "2"))
    result = compact(partition.log.disk, job)
    assert result is not None
    put(partition, ("c", "1"))
    retired = install(partition.log, job, result)
    assert retired and before.read() == expected
    for path in retired:
        partition.log.disk.remove(path)
    put(partition, ("d", "1"))
    assert table(records(partition)) == {"a": "2", "b": "2", "c": "1", "d": "1"}


def test_a_log_that_changed_meanwhile_is_left_as_it_is(disk: MemDisk, partition: Partition) -> None:
    for number in range(3):
        put(partition, ("a", str(number)))
        partition.log.roll()
    job = plan(partition)
    assert job is not None
    result = compact(disk, job)
    assert result is not None
    partition.require_leading().delete_records(2)
    partition.log.configure(log_settings(is_compacted=True))
    partition.log.delete_expired(0, partition.high_watermark)
    before = records(partition)
    assert install(partition.log, job, result) is None
    assert records(partition) == before
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".cleaned")]
    assert compact(disk, job) is None, "a segment of the job is gone"


def test_p11_a_damaged_batch_is_not_given_a_new_crc(disk: MemDisk, partition: Partition) -> None:
    put(partition, ("a", "1"), ("b", "1"))
    put(partition, ("a", "2"))
    partition.log.roll()
    job = plan(partition)
    assert job is not None
    disk.flip_bits(f"{DIRECTORY}/{0:020d}.log", 70)
    with pytest.raises(StorageError, match="CRC"):
        compact(disk, job)


# Any history


class History:
    """Runs plain and transactional writers with compaction in between, and compares the log with the last committed values."""

    def __init__(self, seed: int, disk: MemDisk) -> None:
        self.random = Random(seed)
        self.partition = leader(open_log(disk))
        self.committed: dict[int, tuple[str, str | None]] = {}
        self.open: dict[int, dict[int, tuple[str, str | None]]] = {}
        self.sequences = {7: 0, 8: 0}
        self.first_dirty = 0
        self.now_ms = 10

    def pair(self) -> tuple[str, str | None]:
        return self.random.choice("abcd"), self.random.choice([None, "1", "2", "long" * 20])

    def step(self) -> None:
        action = self.random.randrange(12)
        pairs = [self.pair() for _ in range(self.random.randint(1, 3))]
        producer_id = self.random.choice([7, 8])
        if action < 4:
            first = put(self.partition, *pairs, codec=self.random.choice([0, 3]))
            self.committed.update({first + index: pair for index, pair in enumerate(pairs)})
        elif action < 7:
            first = put(self.partition, *pairs, producer=(producer_id, 0), sequence=self.sequences[producer_id])
            self.sequences[producer_id] += len(pairs)
            self.open.setdefault(producer_id, {}).update({first + index: pair for index, pair in enumerate(pairs)})
        elif action < 9 and producer_id in self.open:
            is_commit = self.random.random() < 0.5
            self.partition.require_leading().write_marker(producer_id, 0, 1, is_commit, 5)
            written = self.open.pop(producer_id)
            self.committed.update(written if is_commit else {})
        elif action == 9:
            self.partition.log.roll()
        elif action == 10:
            self.now_ms += self.random.choice([1, RETENTION])
        elif action == 11:
            self.compact()

    def compact(self) -> None:
        job = plan(self.partition, first_dirty=self.first_dirty, now_ms=self.now_ms)
        if job is not None:
            result = compact(self.partition.log.disk, job)
            assert result is not None
            for path in install(self.partition.log, job, result) or ():
                self.partition.log.disk.remove(path)
            self.first_dirty = result.end_offset

    def check(self, partition: Partition) -> None:
        visible = {offset: pair for offset, pair in self.committed.items() if offset < partition.last_stable_offset}
        seen = records(partition)
        assert table(seen) == table(visible)
        assert seen.items() <= visible.items(), "a record at an offset that was never its own"


@pytest.mark.parametrize("first_seed", range(0, 60, 10))
def test_i8_any_history_keeps_the_table(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 10):
        disk = MemDisk("/data")
        history = History(seed, disk)
        for _ in range(60):
            history.step()
            history.check(history.partition)
        history.partition.log.close(clean=True)
        reopened = leader(open_log(disk, was_clean=True))
        move_high_watermark(reopened.state, reopened.log.log_end_offset)
        history.check(reopened)


@pytest.mark.parametrize("seed", range(6))
def test_i43_a_crash_at_any_change_of_the_disk_keeps_the_table(seed: int) -> None:
    """Each state of the disk that a power failure during a round can leave opens with the same values, and its indexes agree with the log
    (I6)."""
    disk = MemDisk("/data")
    history = History(seed, disk)
    for _ in range(50):
        history.step()
    for producer_id in list(history.open):
        history.partition.require_leading().write_marker(producer_id, 0, 1, True, 5)
    put(history.partition, ("d", "last"))
    history.partition.log.roll()
    history.partition.log.flush()
    end = history.partition.log.log_end_offset
    expected = table(records(history.partition))
    images: list[MemDisk] = []
    random = Random(seed)

    def keep(_operation: str, _path: str) -> None:
        images.append(disk.image(RandomPort(random)) if len(images) % 2 else disk.image())

    disk.on_change = keep
    history.compact()
    disk.on_change = None
    assert images
    for image in images:
        log = Log.open(image, DIRECTORY, KEY, CONFIG, now_ms=0, was_clean=False, recovery_point=end)
        assert log.log_end_offset == end
        assert table(records(leader(log))) == expected


class RandomPort:
    """`ports.Random` over a seeded generator."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)


def test_a_failing_disk_leaves_the_log_as_it_was(disk: MemDisk, partition: Partition) -> None:
    put(partition, ("a", "1"))
    put(partition, ("a", "2"))
    partition.log.roll()
    job = plan(partition)
    assert job is not None
    disk.fail_next("write", path_part=".cleaned")
    with pytest.raises(StorageError):
        compact(disk, job)
    assert records(partition) == {0: ("a", "1"), 1: ("a", "2")}
    run(partition)
    assert records(partition) == {1: ("a", "2")}
