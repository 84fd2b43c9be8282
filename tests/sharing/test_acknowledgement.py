"""Acknowledgements of members: valid and invalid ones, and the states that follow."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.sharing.acknowledgement import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Rules,
    check,
    plan,
    plan_release,
    ranges,
)
from ottla.sharing.in_flight import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, InFlight

RULES = Rules(delivery_count_max=5, may_renew=True)


def in_flight(*lasts: int, member: str = "a", delivery_count: int = 1) -> InFlight:
    flight = InFlight(0)
    for last in lasts:
        flight.append(last, ACQUIRED, delivery_count, member, 100)
    return flight


@pytest.mark.parametrize(
    ("said", "is_renewing"),
    [
        ([Acknowledgement(3, 2, [ACCEPT])], False),
        ([Acknowledgement(0, 1, [])], False),
        ([Acknowledgement(0, 3, [ACCEPT, ACCEPT])], False),
        ([Acknowledgement(0, 1, [5])], False),
        ([Acknowledgement(0, 1, [-1])], False),
        ([Acknowledgement(0, 1, [RENEW])], False),
        ([Acknowledgement(8, 9, [REJECT]), Acknowledgement(1, 1, [ACCEPT])], False),
    ],
)
def test_invalid_acknowledgements(said: list[Acknowledgement], is_renewing: bool) -> None:
    with pytest.raises(ApiError) as caught:
        check(said, is_renewing)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_valid_acknowledgements() -> None:
    said = [Acknowledgement(0, 1, [RENEW, ACCEPT]), Acknowledgement(2, 9, [GAP])]
    check(said, True)
    assert [list(ranges(one)) for one in said] == [[(0, 0, RENEW), (1, 1, ACCEPT)], [(2, 9, GAP)]]
    assert list(ranges(Acknowledgement(5, 9, [1, 1, 2, 2, 1]))) == [(5, 6, 1), (7, 8, 2), (9, 9, 1)]


def test_each_type_has_its_outcome() -> None:
    flight = in_flight(9)
    changing, renewed = plan(flight, "a", [Acknowledgement(0, 4, [GAP, ACCEPT, RELEASE, REJECT, RENEW])], RULES, 700)
    assert [(run.first, run.target) for run in changing] == [(0, ARCHIVED), (1, ACKNOWLEDGED), (2, AVAILABLE), (3, ARCHIVED)]
    assert [(run.first, run.last, run.deadline_ms) for run in renewed] == [(4, 4, 700)]
    assert all(run.state is ACQUIRED for run in flight.runs)


def test_a_whole_batch_is_one_change() -> None:
    flight = in_flight(499, 999)
    changing, _ = plan(flight, "a", [Acknowledgement(0, 499, [ACCEPT])], RULES, 0)
    assert [(run.first, run.last) for run in changing] == [(0, 499)]
    assert len(flight.runs) == 2


def test_a_release_after_the_last_delivery_archives() -> None:
    changing, _ = plan(in_flight(9, delivery_count=5), "a", [Acknowledgement(0, 9, [RELEASE])], RULES, 0)
    assert [run.target for run in changing] == [ARCHIVED]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([Acknowledgement(0, 9, [ACCEPT]), Acknowledgement(25, 25, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),  # another member has it
        ([Acknowledgement(5, 5, [ACCEPT]), Acknowledgement(5, 9, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),  # acknowledged twice
        ([Acknowledgement(0, 9, [ACCEPT]), Acknowledgement(15, 15, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),  # already released
        ([Acknowledgement(0, 9, [ACCEPT]), Acknowledgement(25, 30, [ACCEPT])], ErrorCode.INVALID_REQUEST),  # not delivered
    ],
)
def test_one_invalid_acknowledgement_changes_nothing(said: list[Acknowledgement], code: ErrorCode) -> None:
    flight = in_flight(9, 19)
    flight.set_state(flight.runs[1], AVAILABLE)
    flight.append(29, ACQUIRED, 1, "b", 100)
    with pytest.raises(ApiError) as caught:
        plan(flight, "a", said, RULES, 900)
    assert caught.value.code is code
    assert all(run.target is None and run.deadline_ms < 900 for run in flight.runs)


def test_acknowledgements_below_the_start_succeed() -> None:
    flight = in_flight(9, 19)
    flight.set_state(flight.runs[0], ACKNOWLEDGED)
    flight.advance()
    assert plan(flight, "a", [Acknowledgement(0, 9, [ACCEPT])], RULES, 0) == ([], [])
    changing, _ = plan(flight, "a", [Acknowledgement(5, 12, [ACCEPT])], RULES, 0)
    assert [(run.first, run.last) for run in changing] == [(10, 12)]


def test_nothing_is_in_flight() -> None:
    with pytest.raises(ApiError) as caught:
        plan(InFlight(5), "a", [Acknowledgement(4, 6, [ACCEPT])], RULES, 0)
    assert caught.value.code is ErrorCode.INVALID_RECORD_STATE


def test_renewing_may_be_switched_off() -> None:
    flight = in_flight(9)
    with pytest.raises(ApiError) as caught:
        plan(flight, "a", [Acknowledgement(0, 9, [RENEW])], Rules(5, may_renew=False), 900)
    assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
    assert flight.runs[0].deadline_ms == 100


def test_records_of_a_member_that_leaves_become_available() -> None:
    flight = in_flight(9, 19)
    flight.append(29, ACQUIRED, 5, "a", 100)
    flight.append(39, ACQUIRED, 1, "b", 100)
    plan(flight, "a", [Acknowledgement(0, 9, [ACCEPT])], RULES, 0)
    assert [(run.first, run.target) for run in plan_release(flight, frozenset(("a",)), RULES)] == [(10, AVAILABLE), (20, ARCHIVED)]
