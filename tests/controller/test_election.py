"""Who leads: every rule by a row, and for random clusters that no clean choice is ever out of sync (P10, I9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.election import (
    Elected,
    elect_after_failure,
    elect_for_shutdown,
    elect_preferred,
    elect_reassigned,
    live_members,
)

AFTER_FAILURE = [
    # replicas, isr, live, unclean allowed, elected
    ((1, 2, 3), (1, 2, 3), (2, 3), False, Elected(2, (2, 3))),
    ((1, 2, 3), (3, 2), (2, 3), False, Elected(2, (3, 2))),
    ((1, 2, 3), (3,), (1, 2, 3), False, Elected(3, (3,))),
    ((1, 2, 3), (1,), (2, 3), False, None),
    ((1, 2, 3), (1,), (2, 3), True, Elected(2, (2,), is_unclean=True)),
    ((1, 2, 3), (1, 3), (2, 3), True, Elected(3, (3,))),
    ((1, 2, 3), (1,), (), True, None),
]


@pytest.mark.parametrize(("replicas", "isr", "live", "may_be_unclean", "elected"), AFTER_FAILURE)
def test_after_failure(
    replicas: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], may_be_unclean: bool, elected: Elected | None
) -> None:
    assert elect_after_failure(replicas, isr, live, is_unclean_allowed=may_be_unclean) == elected


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "elected"),
    [
        ((1, 2), (2, 1), (1, 2), Elected(1, (2, 1))),
        ((1, 2), (2,), (1, 2), None),
        ((1, 2), (1, 2), (2,), None),
    ],
)
def test_preferred(replicas: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], elected: Elected | None) -> None:
    assert elect_preferred(replicas, isr, live) == elected


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "leaving", "elected"),
    [
        ((1, 2, 3), (1, 2, 3), (1, 2, 3), 1, Elected(2, (2, 3))),
        ((1, 2, 3), (1, 3), (1, 2, 3), 1, Elected(3, (3,))),
        ((1, 2, 3), (1,), (1, 2, 3), 1, None),
        ((1, 2), (1, 2), (1,), 1, None),
    ],
)
def test_controlled_shutdown(
    replicas: tuple[int, ...], isr: tuple[int, ...], live: tuple[int, ...], leaving: int, elected: Elected | None
) -> None:
    assert elect_for_shutdown(replicas, isr, live, leaving) == elected


def test_reassigned() -> None:
    assert elect_reassigned((3, 4), (1, 3, 4), (1, 3, 4)) == Elected(3, (3, 4))
    assert elect_reassigned((3, 4), (1, 4), (1, 3, 4)) == Elected(4, (4,))
    assert elect_reassigned((3, 4), (1,), (1, 3, 4)) is None


def test_the_last_member_stays_though_dead() -> None:
    assert live_members((1, 2), (2,)) == (2,)
    assert live_members((1,), ()) == (1,)


REPLICAS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


@given(REPLICAS, st.data(), st.lists(st.integers(0, 5), unique=True))
def test_a_clean_leader_was_in_sync_and_no_other_replica_enters(replicas: list[int], data: st.DataObject, live: list[int]) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    elected = elect_after_failure(replicas, isr, live)
    if elected is None:
        assert not any(member in live for member in isr)
    else:
        assert elected.leader in elected.isr
        assert elected.leader in live
        assert all(member in isr for member in elected.isr)
        assert not elected.is_unclean
