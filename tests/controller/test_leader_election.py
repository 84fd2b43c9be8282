"""The election of leaders: one row for each rule; and for random clusters, that a leader elected without loss is in sync or eligible (P10,
I9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.controller.leader_election import (
    Choice,
    Elected,
    Standing,
    elect_after_failure,
    elect_for_shutdown,
    elect_preferred,
    elect_reassigned,
    eligible_after,
    in_sync_after,
    in_sync_without_leader,
)

Ids = tuple[int, ...]


def partition(replicas: Ids, isr: Ids, eligible: Ids = (), *, leader: int = -1, last: int = -1) -> PartitionMetadata:
    return PartitionMetadata(index=0, leader=leader, leader_epoch=0, replicas=replicas, isr=isr, eligible=eligible, last_leader=last)


AFTER_FAILURE = [
    # replicas, isr, live, unclean allowed, elected
    ((1, 2, 3), (1, 2, 3), (2, 3), False, Elected(2, (2, 3))),
    ((1, 2, 3), (3, 2), (2, 3), False, Elected(2, (3, 2))),
    ((1, 2, 3), (3,), (1, 2, 3), False, Elected(3, (3,))),
    ((1, 2, 3), (1,), (2, 3), False, None),
    ((1, 2, 3), (1,), (2, 3), True, Elected(2, (2,), Choice.UNCLEAN)),
    ((1, 2, 3), (1, 3), (2, 3), True, Elected(3, (3,))),
    ((1, 2, 3), (1,), (), True, None),
]


@pytest.mark.parametrize(("replicas", "isr", "live", "may_be_unclean", "elected"), AFTER_FAILURE)
def test_after_failure(replicas: Ids, isr: Ids, live: Ids, may_be_unclean: bool, elected: Elected | None) -> None:
    assert elect_after_failure(partition(replicas, isr), Standing(live=live), is_unclean_allowed=may_be_unclean) == elected


ORDER = [
    # isr, eligible, standing, elected (replicas 1 to 4, last leader 4, unclean allowed)
    ((2, 3), (4,), Standing(live=(1, 2, 3, 4), restarted=(2,)), Elected(3, (3,))),
    ((2, 3), (4,), Standing(live=(1, 2, 3, 4), restarted=(2, 3)), Elected(2, (2, 3))),
    ((2, 3), (4,), Standing(live=(1, 2, 3, 4), restarted=(2, 3), lost=(2,)), Elected(3, (3,))),
    ((2, 3), (1, 4), Standing(live=(1, 2, 3, 4), restarted=(2, 3), lost=(2, 3)), Elected(1, (1,), Choice.ELIGIBLE)),
    ((2, 3), (1, 4), Standing(live=(1, 4)), Elected(1, (1,), Choice.ELIGIBLE)),
    ((2, 3), (1, 4), Standing(live=(1, 4), leaving=(1,)), Elected(4, (4,), Choice.ELIGIBLE)),
    ((2, 3), (1,), Standing(live=(1, 2, 3, 4), restarted=(1, 2, 3), lost=(1, 2, 3)), Elected(2, (2,), Choice.UNPROVED)),
    ((2, 4), (), Standing(live=(1, 2, 3, 4), restarted=(2, 4), lost=(2, 4)), Elected(4, (4,), Choice.UNPROVED)),
    ((2, 3), (), Standing(live=(1, 2, 4), restarted=(2,), lost=(2,)), Elected(4, (4,), Choice.UNCLEAN)),
    ((2, 3), (), Standing(live=(1,)), Elected(1, (1,), Choice.UNCLEAN)),
]


@pytest.mark.parametrize(("isr", "eligible", "standing", "elected"), ORDER)
def test_the_order_of_election(isr: Ids, eligible: Ids, standing: Standing, elected: Elected) -> None:
    """KIP-966: first a replica in sync, then an eligible one, then one of these without a proof that its log is whole, last an unclean
    election."""
    assert elect_after_failure(partition((1, 2, 3, 4), isr, eligible, last=4), standing, is_unclean_allowed=True) == elected
    clean = elect_after_failure(partition((1, 2, 3, 4), isr, eligible, last=4), standing)
    assert clean == (None if elected.choice is Choice.UNCLEAN else elected)


def test_a_broker_without_proof_is_not_elected_over_an_eligible_one_that_is_away() -> None:
    """P2."""
    alone = partition((1, 2), (1,), (2,), leader=1)
    back = Standing(live=(1,), restarted=(1,), lost=(1,))
    assert elect_after_failure(alone, back) is None
    assert in_sync_without_leader(alone, back) == (2,)
    assert in_sync_without_leader(alone, Standing(live=())) == (1,)


@pytest.mark.parametrize(
    ("isr", "standing", "remaining"),
    [
        ((1, 2), Standing(live=(2,)), (2,)),
        ((1,), Standing(live=()), (1,)),
        ((1, 2), Standing(live=(1, 2), restarted=(1,)), (2,)),
        ((1, 2), Standing(live=(1,), restarted=(1,)), (1,)),
        ((1, 2), Standing(live=(1,), restarted=(1,), lost=(1,)), (2,)),
        ((1, 2), Standing(live=(1, 2), restarted=(1, 2), lost=(1, 2)), (1, 2)),
        ((1, 2), Standing(live=(1, 2)).without([1]), (2,)),
        ((1,), Standing(live=(1, 2)).without([1]), (1,)),
    ],
)
def test_who_remains_in_sync(isr: Ids, standing: Standing, remaining: Ids) -> None:
    assert in_sync_after(isr, standing) == remaining


@pytest.mark.parametrize(
    ("isr", "eligible", "after", "minimum", "lost", "expected"),
    [
        ((1, 2, 3), (), (1, 2), 2, (), ()),
        ((1, 2, 3), (), (1,), 2, (), (2, 3)),
        ((1, 2, 3), (), (1,), 2, (3,), (2,)),
        ((1,), (2, 3), (2,), 2, (), (1, 3)),
        ((1,), (2,), (1, 3), 2, (), ()),
        ((1, 2), (), (1,), 9, (), (2,)),
        ((1,), (2,), (1,), 1, (), ()),
    ],
)
def test_who_is_eligible(isr: Ids, eligible: Ids, after: Ids, minimum: int, lost: Ids, expected: Ids) -> None:
    assert eligible_after(partition((1, 2, 3), isr, eligible), after, minimum, lost) == expected


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "elected"),
    [
        ((1, 2), (2, 1), (1, 2), Elected(1, (2, 1))),
        ((1, 2), (2,), (1, 2), None),
        ((1, 2), (1, 2), (2,), None),
    ],
)
def test_preferred(replicas: Ids, isr: Ids, live: Ids, elected: Elected | None) -> None:
    assert elect_preferred(partition(replicas, isr), Standing(live=live)) == elected
    assert elect_preferred(partition(replicas, isr), Standing(live=live, leaving=(1,))) is None


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "leaving", "elected"),
    [
        ((1, 2, 3), (1, 2, 3), (1, 2, 3), (1,), Elected(2, (2, 3))),
        ((1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2), Elected(3, (3,))),
        ((1, 2, 3), (1, 3), (1, 2, 3), (1,), Elected(3, (3,))),
        ((1, 2, 3), (1,), (1, 2, 3), (1,), None),
        ((1, 2), (1, 2), (1,), (1,), None),
    ],
)
def test_controlled_shutdown(replicas: Ids, isr: Ids, live: Ids, leaving: Ids, elected: Elected | None) -> None:
    assert elect_for_shutdown(partition(replicas, isr), Standing(live=live, leaving=leaving)) == elected


def test_reassigned() -> None:
    everybody = Standing(live=(1, 3, 4))
    assert elect_reassigned((3, 4), (1, 3, 4), everybody) == Elected(3, (3, 4))
    assert elect_reassigned((3, 4), (1, 4), everybody) == Elected(4, (4,))
    assert elect_reassigned((3, 4), (1,), everybody) is None


REPLICAS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)
SOME = st.lists(st.integers(0, 5), unique=True)


@given(REPLICAS, st.data(), SOME, SOME, SOME)
def test_a_leader_without_loss_was_in_sync_or_eligible_and_none_enters(
    replicas: list[int], data: st.DataObject, live: list[int], restarted: list[int], lost: list[int]
) -> None:
    isr = tuple(data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    eligible = tuple(replica for replica in data.draw(st.lists(st.sampled_from(replicas), unique=True)) if replica not in isr)
    restarted = [broker_id for broker_id in restarted if broker_id in live]
    standing = Standing(live=live, restarted=restarted, lost=[broker_id for broker_id in lost if broker_id in restarted])
    before = partition(tuple(replicas), isr, eligible)
    elected = elect_after_failure(before, standing)
    if elected is None:
        assert not any(standing.is_proved(member) for member in (*isr, *eligible))
        return
    assert elected.leader in elected.isr and elected.leader in live
    assert all(member in (*isr, *eligible) for member in elected.isr)
    if elected.is_lossless:
        assert all(standing.is_proved(member) for member in elected.isr)
    else:
        assert elected.choice is Choice.UNPROVED
        assert all(member in standing.lost for member in (*isr, *eligible)), "none that may hold more is left"
    assert in_sync_after(isr, standing) and in_sync_without_leader(before, standing)
