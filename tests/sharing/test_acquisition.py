"""Which records a member acquires: whole log batches or an exact number, no gaps and no control batches, and records that failed before in
small groups."""

from __future__ import annotations

import pytest

from ottla.sharing.acquisition import Acquired, LogBatch, Terms, acquire, may_acquire
from ottla.sharing.in_flight import ACQUIRED, ARCHIVED, AVAILABLE, InFlight


def terms(
    records_max: int = 500, *, batch_size: int = 500, strict: bool = False, in_flight_max: int = 2000, delivery_count_max: int = 5
) -> Terms:
    return Terms(records_max, batch_size, strict, in_flight_max, delivery_count_max, 1000)


def log(*sizes: int, base: int = 0) -> list[LogBatch]:
    batches = []
    for size in sizes:
        batches.append((base, base + size - 1, True))
        base += size
    return batches


def release(flight: InFlight) -> None:
    for run in flight.runs:
        if run.state is ACQUIRED:
            flight.set_state(run, AVAILABLE)


def test_whole_log_batches_until_there_are_enough() -> None:
    flight = InFlight(0)
    assert acquire(flight, "a", 0, log(10, 10, 10, 10), terms(15)) == [Acquired(0, 19, 1)]
    assert acquire(flight, "b", 20, log(10, 10, base=20), terms(5)) == [Acquired(20, 29, 1)]
    assert [(run.member, run.deadline_ms) for run in flight.runs] == [("a", 1000), ("b", 1000)]


@pytest.mark.parametrize(
    ("batch_size", "expected"),
    [(5, [(0, 9), (10, 19), (20, 29), (30, 39)]), (15, [(0, 19), (20, 39)]), (500, [(0, 39)])],
)
def test_batches_of_about_the_wanted_size(batch_size: int, expected: list[tuple[int, int]]) -> None:
    flight = InFlight(0)
    acquired = acquire(flight, "a", 0, log(10, 10, 10, 10), terms(batch_size=batch_size))
    assert [(first, last) for first, last, _ in acquired] == expected == [(run.first, run.last) for run in flight.runs]


def test_a_strict_limit() -> None:
    flight = InFlight(0)
    assert acquire(flight, "a", 0, log(10, 10), terms(15, strict=True)) == [Acquired(0, 14, 1)]
    assert acquire(flight, "a", 15, log(10, base=10), terms(3, strict=True)) == [Acquired(15, 17, 1)]
    release(flight)
    assert acquire(flight, "b", 0, log(10, 10), terms(4, strict=True)) == [Acquired(0, 3, 2)]
    assert acquire(flight, "b", 4, log(10, 10, 10), terms(20, strict=True)) == [Acquired(4, 17, 2), Acquired(18, 23, 1)]


def test_no_more_of_the_log_is_looked_at_than_is_needed() -> None:
    looked: list[int] = []

    def walk() -> list[LogBatch]:
        for batch in log(10, 10, 10):
            looked.append(batch[0])
            yield batch  # type: ignore[misc]

    acquire(InFlight(0), "a", 0, walk(), terms(10))
    assert looked == [0]


def test_nothing_is_wanted() -> None:
    assert acquire(InFlight(0), "a", 0, log(10), terms(0)) == []


def test_reading_begins_within_a_batch() -> None:
    flight = InFlight(4)
    assert acquire(flight, "a", 4, log(10), terms()) == [Acquired(4, 9, 1)]


def test_offsets_that_compaction_has_removed_are_skipped() -> None:
    flight = InFlight(0)
    acquired = acquire(flight, "a", 0, [(5, 9, True), (20, 24, True)], terms())
    assert [(first, last) for first, last, _ in acquired] == [(5, 9), (20, 24)]
    assert flight.start == 5
    assert [(run.first, run.state) for run in flight.runs] == [(5, ACQUIRED), (10, ARCHIVED), (20, ACQUIRED)]


def test_control_batches_and_aborted_records_are_not_acquired() -> None:
    flight = InFlight(0)
    batches = [(0, 0, False), (1, 5, True), (6, 6, False), (7, 9, False)]
    assert acquire(flight, "a", 0, batches, terms()) == [Acquired(1, 5, 1)]
    assert (flight.start, flight.end, flight.complete_count) == (1, 10, 4)
    only_control = InFlight(0)
    assert acquire(only_control, "a", 0, [(0, 3, False)], terms()) == []
    assert (only_control.start, only_control.next_offset()) == (4, 4)


def test_released_records_are_acquired_again_and_those_of_others_are_not() -> None:
    flight = InFlight(0)
    acquire(flight, "a", 0, log(10), terms())
    acquire(flight, "b", 10, log(10, base=10), terms())
    flight.set_state(flight.runs[flight.isolate(0, 3, 5)], AVAILABLE)
    assert flight.next_offset() == 3
    assert acquire(flight, "c", 3, log(10, 10, 10), terms()) == [Acquired(3, 5, 2), Acquired(20, 29, 1)]
    assert [run.member for run in flight.runs] == ["a", "c", "a", "b", "c"]


def test_single_records_that_come_again_together_are_one_run_again() -> None:
    flight = InFlight(0)
    acquire(flight, "a", 0, log(4), terms())
    for at in range(4):
        flight.set_state(flight.runs[flight.isolate(flight.index_of(at), at, at)], AVAILABLE)
    assert len(flight.runs) == 4
    assert acquire(flight, "b", 0, log(4), terms()) == [Acquired(0, 3, 2)]
    assert len(flight.runs) == 1


def test_room_for_records_in_flight() -> None:
    flight = InFlight(0)
    full = terms(in_flight_max=25)
    assert acquire(flight, "a", 0, log(10, 10, 10, 10), full) == [Acquired(0, 29, 1)]
    assert not may_acquire(flight, 25)
    assert acquire(flight, "a", 30, log(10, base=30), full) == []
    release(flight)
    assert may_acquire(flight, 25)
    assert acquire(flight, "a", 0, log(10, 10, 10, 10), full) == [Acquired(0, 29, 2)]
    assert acquire(InFlight(0), "a", 0, log(40), terms(in_flight_max=25, strict=True)) == [Acquired(0, 24, 1)]


def test_records_that_fail_come_in_ever_smaller_parts() -> None:
    flight = InFlight(0)
    parts = []
    for _ in range(7):
        offset = flight.next_offset()
        acquired = acquire(flight, "a", offset, log(8, 8), terms(8))
        parts += [tuple(run) for run in acquired]
        for run in list(flight.runs):
            if run.state is ACQUIRED:
                flight.set_state(run, AVAILABLE if run.delivery_count < 5 else ARCHIVED)
        flight.advance()
    assert parts == [(0, 7, 1), (0, 7, 2), (0, 7, 3), (0, 3, 4), (0, 0, 5), (1, 1, 5), (2, 2, 5)]


def test_a_limit_of_two_deliveries_knows_no_small_parts() -> None:
    flight = InFlight(0)
    acquire(flight, "a", 0, log(8), terms(delivery_count_max=2))
    release(flight)
    assert acquire(flight, "a", 0, log(8), terms(delivery_count_max=2)) == [Acquired(0, 7, 2)]
