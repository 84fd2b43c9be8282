"""The balance of leaders: a broker gets back the leadership of its preferred partitions when other brokers lead too many of them."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import NO_LEADER, BrokerLeaving
from ottla.controller.balance import decide_balance
from tests.controller.cluster import Rules, applied, state_of, with_topic

AWAY = (2, (1, 2), (1, 2))
HOME = (1, (1, 2), (1, 2))


@pytest.mark.parametrize(
    ("away", "home", "percentage", "expected"), [(1, 9, 10, 0), (1, 8, 10, 1), (1, 0, 100, 0), (3, 3, 49, 3), (3, 3, 50, 0), (0, 5, 0, 0)]
)
def test_a_broker_gets_its_partitions_back_above_the_percentage(away: int, home: int, percentage: int, expected: int) -> None:
    state = with_topic(state_of(1, 2), *[AWAY] * away, *[HOME] * home)
    plan = decide_balance(state, percentage, Rules())
    assert plan.answer == expected
    after = applied(state, plan)
    assert after[:expected] == [(1, 6, 10, (1, 2))] * expected
    assert [leader for leader, *_ in after[expected:]] == [2] * (away - expected) + [1] * home


def test_only_what_is_in_sync_live_and_stays_goes_back() -> None:
    out_of_sync, dead, leaderless = (2, (1, 2), (2,)), (2, (3, 2), (2, 3)), (NO_LEADER, (1, 2), (2,))
    state = with_topic(state_of(1, 2), out_of_sync, dead, leaderless)
    assert decide_balance(state, 10, Rules()).answer == 0
    state = with_topic(state_of(1, 2), AWAY)
    state.apply([BrokerLeaving(1, 101)])
    assert decide_balance(state, 10, Rules()).operations == ()
