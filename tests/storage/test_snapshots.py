"""Snapshot files of producers: which are kept, which are used, and that replaying the later batches gives the state of the running broker
(I6, I20)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.storage import recovery_aids
from ottla.storage.producers import PRODUCERS_PER_STEP, ProducerStates
from ottla.storage.snapshots import AT_ONCE_MAX, ProducerSnapshots, aborted_between, replay
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import DIRECTORY, PARTITION, ROOT, LogBuilder, batch_of, marker_of, names


def producers_of(built: LogBuilder) -> list[tuple[object, ...]]:
    return rows_of(built.log.producers)


def rows_of(producers: ProducerStates) -> list[tuple[object, ...]]:
    return [
        (entry.producer_id, entry.epoch, entry.batches, entry.next_sequence, entry.transaction_first_offset) for entry in producers.active()
    ]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["data", "data", "commit", "abort", "roll"])), max_size=25))
def test_any_snapshot_and_the_batches_behind_it_give_the_live_state(steps: list[tuple[int, str]]) -> None:
    built = LogBuilder(log_settings(index_interval_bytes=100))
    sequences = [0, 0, 0]
    for producer, step in steps:
        if step == "roll":
            built.log.roll()
        elif step == "data":
            sequence = sequences[producer]
            built.append(batch_of(2, producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True))
            sequences[producer] += 2
        else:
            built.append(marker_of(is_commit=step == "commit", producer_id=producer))
    log = built.log
    for offset in [None, *log.snapshots.offsets]:
        again = ProducerStates(PARTITION)
        if offset is not None:
            assert log.snapshots.restore(again, offset, []) == offset == again.map_end_offset
        replay(again, log.segments, offset or 0, log.log_end_offset)
        assert sorted(rows_of(again), key=repr) == sorted(producers_of(built), key=repr)
        assert again.first_unstable_offset == log.producers.first_unstable_offset
    aborted = [entry for segment in log.segments for entry in segment.aborted()]
    assert aborted_between(PARTITION, log.snapshots, log.segments, 0, log.log_end_offset, []) == aborted


def test_one_a_segment_and_the_newest_are_kept() -> None:
    built = LogBuilder()
    for _ in range(3):
        for _ in range(2):
            built.append(batch_of())
            built.log.write_recovery_aids(0)
        built.log.roll()
    built.append(batch_of())
    built.log.write_recovery_aids(0)
    assert [name for name in names(built.disk) if name.endswith(".snapshot")] == [f"{offset:020d}.snapshot" for offset in (2, 4, 6, 7)]
    assert built.log.snapshots.offsets == [2, 4, 6, 7] and built.log.snapshots.newest == 7


def test_recovery_aids_wait_until_they_are_worth_it() -> None:
    built = LogBuilder()
    size = len(batch_of())
    built.append_many(3)
    built.log.write_recovery_aids(3 * size)
    assert built.log.snapshots.offsets == []
    built.log.write_recovery_aids(3 * size - 1)
    assert built.log.snapshots.offsets == [3]
    built.append_many(2)
    built.log.write_recovery_aids(2 * size)
    assert built.log.snapshots.offsets == [3]
    built.log.write_recovery_aids(2 * size - 1)
    assert built.log.snapshots.offsets == [5]


MANY = AT_ONCE_MAX + 1


def log_of_many() -> LogBuilder:
    """Returns a log with more producers than are saved in one step, and a segment behind them."""
    built = LogBuilder(log_settings(retention_bytes=0))
    for producer in range(MANY):
        built.append(batch_of(producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=producer == 5))
    built.log.roll()
    return built


def test_many_producers_are_saved_in_steps_as_they_were_at_the_first() -> None:
    built = log_of_many()
    log = built.log
    assert log.snapshots.offsets == [], "the roll wrote none"
    expected = sorted(map(repr, producers_of(built)))
    count = 0
    for _ in recovery_aids.in_steps(log):
        count += 1
        for producer in (count, MANY - count):
            built.append(batch_of(producer_id=producer, producer_epoch=1, base_sequence=0))
        built.append(batch_of(producer_id=MANY + count, producer_epoch=0, base_sequence=0))
        if count == 1:
            built.append(marker_of(is_commit=True, producer_id=5))
    assert count > MANY // PRODUCERS_PER_STEP and log.snapshots.offsets == [MANY]
    again = ProducerStates(PARTITION)
    assert log.snapshots.restore(again, MANY, []) == MANY
    assert sorted(map(repr, rows_of(again))) == expected and again.first_unstable_offset == 5
    replay(again, log.segments, MANY, log.log_end_offset)
    assert sorted(rows_of(again), key=repr) == sorted(producers_of(built), key=repr)
    assert list(recovery_aids.in_steps(log)) == [], "it is not due again"


def test_a_snapshot_in_steps_is_given_up_when_the_log_is_cut() -> None:
    built = log_of_many()
    for done in (1, MANY // PRODUCERS_PER_STEP + 2):
        built.append(batch_of())
        steps = recovery_aids.in_steps(built.log)
        for _ in range(done):
            next(steps)
        built.log.truncate_to(built.log.log_end_offset - 1)
        assert list(steps) == [] and built.log.snapshots.offsets == []
        assert not [name for name in names(built.disk) if name.endswith(".tmp")]
    built.log.write_recovery_aids(0)
    assert built.log.snapshots.offsets == [MANY]


def test_i20_retention_waits_until_many_producers_are_saved() -> None:
    built = log_of_many()
    log = built.log
    assert log.delete_expired(built.now_ms, log.log_end_offset) == [] and log.log_start_offset == 0
    for _ in recovery_aids.in_steps(log):
        pass
    built.append(batch_of())
    assert log.delete_expired(built.now_ms, log.log_end_offset) and log.log_start_offset == MANY
    reopened = built.open(was_clean=False)
    assert len(reopened.producers) == MANY


def test_a_bad_snapshot_goes_and_the_one_before_it_serves() -> None:
    disk = MemDisk(ROOT)
    disk.makedirs(DIRECTORY)
    states = ProducerStates(PARTITION)
    snapshots = ProducerSnapshots(disk, DIRECTORY, [])
    for offset in (10, 20, 30):
        snapshots.write(offset, states)
    disk.write_file(snapshots.path(20), b"torn")
    notes: list[str] = []
    assert snapshots.restore(states, 29, notes) == 10
    assert len(notes) == 1 and snapshots.path(20) in notes[0]
    assert snapshots.offsets == [10, 30] and not disk.exists(snapshots.path(20))
    assert snapshots.restore(states, 9, notes) is None
    snapshots.remove_above(10)
    assert snapshots.offsets == [10] and not disk.exists(snapshots.path(30))
