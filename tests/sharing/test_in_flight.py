"""Runs of offsets: split where records get different states, joined when the states are equal again, removed when the records are
completed."""

from __future__ import annotations

import pytest

from ottla.base.share_state import DeliveryState, StateBatch
from ottla.sharing.in_flight import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, InFlight, state_batches


def shown(flight: InFlight) -> list[tuple[int, int, DeliveryState, int]]:
    return [(run.first, run.last, run.state, run.delivery_count) for run in flight.runs]


def test_stored_batches_and_the_gaps_between_them() -> None:
    flight = InFlight(5, [StateBatch(20, 29, 2, 1), StateBatch(0, 9, 4, 5), StateBatch(12, 14, 0, 2)])
    assert (flight.start, flight.end, flight.count) == (10, 30, 20)
    assert shown(flight) == [(10, 11, AVAILABLE, 0), (12, 14, AVAILABLE, 2), (15, 19, AVAILABLE, 0), (20, 29, ACKNOWLEDGED, 1)]
    assert (flight.available_count, flight.complete_count) == (10, 10)
    assert flight.next_offset() == 10


def test_an_empty_state_begins_at_the_next_offset() -> None:
    flight = InFlight(7)
    assert (flight.next_offset(), flight.count, flight.runs) == (7, 0, [])


def test_a_run_is_cut_where_it_must_be_and_joined_again() -> None:
    flight = InFlight(0)
    flight.append(9, ACQUIRED, 1, "a", 50)
    index = flight.isolate(0, 3, 5)
    assert (index, [(run.first, run.last) for run in flight.runs]) == (1, [(0, 2), (3, 5), (6, 9)])
    assert {run.origin_size for run in flight.runs} == {10}
    flight.join(index, index + 1)
    assert [(run.first, run.last) for run in flight.runs] == [(0, 9)]


@pytest.mark.parametrize(("state", "available", "complete"), [(AVAILABLE, 3, 0), (ACKNOWLEDGED, 0, 3), (ARCHIVED, 0, 3)])
def test_the_sums_follow_the_states(state: DeliveryState, available: int, complete: int) -> None:
    flight = InFlight(0)
    flight.append(9, ACQUIRED, 1, "a", 50)
    flight.set_state(flight.runs[flight.isolate(0, 4, 6)], state)
    assert (flight.available_count, flight.complete_count) == (available, complete)


def test_a_change_takes_effect_only_when_it_is_durable() -> None:
    flight = InFlight(0)
    for last in (9, 19):
        flight.append(last, ACQUIRED, 1, "a", 50)
    first, second = flight.runs
    first.target, second.target = ACKNOWLEDGED, AVAILABLE
    assert not flight.settle([first], is_durable=False)
    assert (first.state, first.target, flight.start) == (ACQUIRED, None, 0)
    first.target = ACKNOWLEDGED
    assert not flight.settle([first], is_durable=True)
    assert (flight.start, second.target) == (10, AVAILABLE)
    assert flight.settle([second], is_durable=True)
    assert (second.state, second.member, flight.available_count) == (AVAILABLE, "", 10)


def test_complete_records_in_the_middle_wait_for_those_before_them() -> None:
    flight = InFlight(0)
    for last in (4, 9, 14):
        flight.append(last, ACQUIRED, 1, "a", 50)
    middle, front = flight.runs[1], flight.runs[0]
    middle.target = ACKNOWLEDGED
    flight.settle([middle], is_durable=True)
    assert (flight.start, flight.complete_count) == (0, 5)
    front.target = ARCHIVED
    flight.settle([front], is_durable=True)
    assert (flight.start, flight.complete_count, len(flight.runs)) == (10, 0, 1)


def test_the_log_begins_later_now() -> None:
    flight = InFlight(0)
    flight.append(9, AVAILABLE, 1)
    flight.append(19, ACQUIRED, 1, "a", 50)
    flight.runs[1].target = ACKNOWLEDGED
    late = list(flight.runs)
    flight.forget_below(12)
    assert (flight.start, flight.available_count, shown(flight)) == (12, 0, [(12, 19, ACQUIRED, 1)])
    flight.forget_below(25)
    assert (flight.start, flight.end, flight.runs) == (25, 25, [])
    assert not flight.settle(late, is_durable=True)
    assert flight.complete_count == 0


def test_the_log_ends_earlier_now() -> None:
    flight = InFlight(5)
    flight.append(9, AVAILABLE, 1)
    flight.append(19, ACQUIRED, 1, "a", 50)
    flight.append(29, ACQUIRED, 1, "a", 50)
    lost = flight.runs[2]
    lost.target = ACKNOWLEDGED
    flight.forget_from(12)
    assert (flight.start, flight.end, flight.available_count) == (5, 12, 5)
    assert shown(flight) == [(5, 9, AVAILABLE, 1), (10, 11, ACQUIRED, 1)]
    assert not flight.settle([lost], is_durable=True)
    flight.forget_from(3)
    assert (flight.start, flight.end, flight.runs, flight.complete_count) == (3, 3, [], 0)


def test_only_records_that_are_not_acquired_are_archived() -> None:
    flight = InFlight(0)
    flight.append(4, AVAILABLE, 1)
    flight.append(9, ACQUIRED, 1, "a", 50)
    flight.archive_free(3, 12)
    assert shown(flight) == [(0, 2, AVAILABLE, 1), (3, 4, ARCHIVED, 1), (5, 9, ACQUIRED, 1), (10, 12, ARCHIVED, 0)]


def test_a_written_state_is_small() -> None:
    flight = InFlight(0)
    for last in (4, 9, 14):
        flight.append(last, ACQUIRED, 1, "a", 50)
    for run in flight.runs[:2]:
        run.target = ACKNOWLEDGED
    flight.runs[2].target = AVAILABLE
    assert state_batches(flight.runs, 2) == (StateBatch(2, 9, 2, 1), StateBatch(10, 14, 0, 1))
    assert state_batches(flight.runs, 10) == (StateBatch(10, 14, 0, 1),)
