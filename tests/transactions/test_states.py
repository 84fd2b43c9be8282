"""The table of states, and the invariants that depend on it."""

from __future__ import annotations

from pathlib import Path

from ottla.transactions.states import ALLOWED, EXPIRABLE, ONGOING, PREPARED, STATUS_NUMBERS, STATUS_STATES, TransactionState
from tools.docs import diagram


def test_the_numbers_are_those_of_kafkas_records() -> None:
    assert [(state.value, number) for state, number in STATUS_NUMBERS.items()] == [
        ("Empty", 0),
        ("Ongoing", 1),
        ("PrepareCommit", 2),
        ("PrepareAbort", 3),
        ("CompleteCommit", 4),
        ("CompleteAbort", 5),
        ("Dead", 6),
        ("PrepareEpochFence", 7),
    ]
    assert all(STATUS_STATES[number] is state for state, number in STATUS_NUMBERS.items())


def test_every_state_has_a_row_in_the_table() -> None:
    assert set(ALLOWED) == set(TransactionState)
    assert [state for state, following in ALLOWED.items() if not following] == [TransactionState.DEAD]


def test_a_commit_is_decided_only_where_something_is_open() -> None:
    assert [state for state, following in ALLOWED.items() if TransactionState.PREPARE_COMMIT in following] == [ONGOING]


def test_a_decision_is_never_taken_back() -> None:
    """I27: the only transition from a Prepare* state is to its own Complete* state."""
    for prepared in PREPARED:
        assert [state.value for state in ALLOWED[prepared]] == [prepared.value.replace("Prepare", "Complete")]


def test_only_ids_with_nothing_open_expire() -> None:
    assert {state for state, following in ALLOWED.items() if TransactionState.DEAD in following} == EXPIRABLE
    assert not EXPIRABLE & PREPARED and ONGOING not in EXPIRABLE


def test_the_documentation_shows_this_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "transactions.md").read_text(encoding="utf-8")
    shown = page.split("<!-- states:transactions -->\n")[1].split("\n<!-- end -->")[0]
    assert shown == "\n".join(diagram(ALLOWED))
