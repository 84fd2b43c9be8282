"""The division of a decision into writes: each within the size bound, each beginning with the check of the epoch, in order."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import BrokerRemoved
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import MULTI_BYTES_MAX, Check, Create, operation_bytes
from ottla.controller.plans import NODE_BYTES_MAX, UNIT_BYTES_MAX, Unit, check_size, in_units, planned
from ottla.metadata_store import znodes
from tests.controller.cluster import state_of

GUARD = Check(znodes.CONTROLLER_EPOCH, 7)


def unit(number: int, size: int) -> Unit:
    return Unit([Create(f"/{number:04}", bytes(size))], [BrokerRemoved(number)])


def test_units_fill_one_write_after_the_other() -> None:
    units = [unit(number, 100_000) for number in range(12)]
    plan = planned(state_of(1), units, answer="done")
    assert [len(part.operations) for part in plan.parts] == [6, 6, 3]
    assert all(part.operations[0] == GUARD for part in plan.parts)
    assert all(sum(map(operation_bytes, part.operations)) <= MULTI_BYTES_MAX for part in plan.parts)
    assert [operation for part in plan.parts for operation in part.operations[1:]] == [unit.operations[0] for unit in units]
    assert plan.changes == tuple(BrokerRemoved(number) for number in range(12)) and plan.answer == "done"
    assert [len(part.changes) for part in plan.parts] == [5, 5, 2]


def test_what_needs_no_write_holds_at_once() -> None:
    plan = planned(state_of(1), [Unit([], [BrokerRemoved(1)])], at_once=[BrokerRemoved(0)])
    assert (plan.parts, plan.at_once) == ((), (BrokerRemoved(0), BrokerRemoved(1)))


def test_a_unit_that_fits_into_no_write_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="fits into no write"):
        planned(state_of(1), [unit(1, MULTI_BYTES_MAX)])


def test_the_largest_unit_fits() -> None:
    room = UNIT_BYTES_MAX - operation_bytes(Create("/0001"))
    assert len(planned(state_of(1), [unit(1, room)]).parts) == 1


def test_neighbours_stay_together() -> None:
    operations = [Create(f"/{number:04}", bytes(90_000)) for number in range(12)]
    units = in_units(operations, pieces_of=2)
    assert [len(unit.operations) for unit in units] == [4, 4, 4]
    assert [operation for unit in units for operation in unit.operations] == operations
    assert in_units([], pieces_of=2) == []


def test_a_node_that_is_too_large_is_an_expected_refusal() -> None:
    check_size(bytes(NODE_BYTES_MAX), "It")
    with pytest.raises(ApiError) as caught:
        check_size(bytes(NODE_BYTES_MAX + 1), "It")
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
