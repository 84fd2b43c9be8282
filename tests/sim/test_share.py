"""The simulation of share groups: each rule that is broken on purpose is found, and a seed repeats its run."""

from __future__ import annotations

import pytest

from ottla.base.share_state import StateBatch
from ottla.sharing.acknowledgement import ACCEPT, REJECT, RELEASE
from tests.sim.seed_search import assert_noticed, run_until
from tests.sim.share_faults import FAULTS, catch
from tests.sim.share_history import DELIVERIES_MAX, LOCK_MS, Holder, ShareHistory
from tests.sim.share_world import ShareWorld

SEEDS_TO_CATCH = 60
FIRST_SEEDS = {
    "answer_before_write": 43,
    "answer_before_durable": 4,
    "release_early": 6,
    "forget_state_epoch": 41,
    "forget_expiry": 11,
    "forget_limit": 10,
    "share_twice": 5,
    "forget_leader_epoch": 59,
    "start_ahead_of_its_write": 25,
    "forget_owner": 32,
}
"""Where to begin with what needs a rare turn of events: it saves time, and nothing depends on it."""


def trace(seed: int) -> tuple[object, ...]:
    world = ShareWorld(seed)
    world.run()
    history = world.history
    return world.events, world.crashes, world.resets, history.deliveries, history.repeated, history.accepted


def test_a_seed_repeats_its_run() -> None:
    assert trace(7) == trace(7)


def test_the_runs_are_worth_something() -> None:
    def is_enough(world: ShareWorld) -> bool:
        history = world.history
        return world.events > 500 and world.crashes > 1 and world.resets > 2 and history.repeated > 20 and history.accepted > 50

    run_until(ShareWorld, range(1, 12), lambda worlds: any(map(is_enough, worlds)))


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH)


# The verdicts themselves


class Share:
    state_epoch = 0


def deliver(history: ShareHistory, offset: int, member: str, count: int, now_ms: int = 0, share: object = Share) -> None:
    history.acquired(0, offset, Holder(member, now_ms + LOCK_MS, share, count), now_ms, 0)


def test_a_good_history_passes() -> None:
    history = ShareHistory(1)
    deliver(history, 0, "a", 1)
    assert history.note_acknowledgement(0, "a", 0, RELEASE, 1) == 1
    history.settled(0, 0, 0, RELEASE, 1)
    deliver(history, 0, "b", 2)
    assert history.note_acknowledgement(0, "a", 0, ACCEPT, 1) == 0, "it is b's"
    assert history.note_acknowledgement(0, "b", 0, ACCEPT, 1) == 2
    history.settled(0, 0, 0, ACCEPT, 2)
    deliver(history, 1, "a", DELIVERIES_MAX)
    assert history.note_acknowledgement(0, "a", 1, ACCEPT, LOCK_MS) == 0, "too late"
    history.judge(0, 2, 0, (StateBatch(0, 0, 2, 2), StateBatch(1, 1, 4, DELIVERIES_MAX)))
    assert (history.deliveries, history.repeated, history.accepted) == (3, 1, 1)


def test_two_owners() -> None:
    history = ShareHistory(1)
    deliver(history, 0, "a", 1)
    with pytest.raises(AssertionError, match="two owners"):
        deliver(history, 0, "b", 2, LOCK_MS - 1)
    deliver(history, 0, "b", 2, LOCK_MS)
    history.left("b")
    deliver(history, 0, "c", 3, LOCK_MS)


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_what_is_done_with_is_not_delivered_again(kind: int) -> None:
    history = ShareHistory(1)
    history.settled(0, 0, 5, kind, 1)
    with pytest.raises(AssertionError, match="again"):
        deliver(history, 5, "a", 2)
    history.begin_era(0, 1, 5)
    deliver(history, 5, "a", 2)  # by an earlier share partition: it is ignored
    assert history.deliveries == 0


def test_deliveries_are_counted() -> None:
    history = ShareHistory(1)
    history.settled(0, 0, 5, RELEASE, 2)
    for count, verdict in ((2, "uncounted"), (DELIVERIES_MAX + 1, "limit"), (0, "limit")):
        with pytest.raises(AssertionError, match=verdict):
            deliver(history, 5, "a", count)


def test_a_leader_that_was_replaced() -> None:
    history = ShareHistory(1)
    history.coordinator_accepted(0, 3)
    with pytest.raises(AssertionError, match="old leader"):
        history.coordinator_accepted(0, 2)


def test_what_was_deleted_from_the_log_is_not_judged() -> None:
    history = ShareHistory(1)
    history.deleted(0, 5)
    history.deleted(0, 3)
    history.settled(0, 0, 4, ACCEPT, 1)
    deliver(history, 4, "a", 1)  # it was found again after a restart
    history.judge(0, 5, 0, ())
    with pytest.raises(AssertionError, match="lost: s-0@5"):
        history.judge(0, 6, 0, ())


@pytest.mark.parametrize(
    ("count", "batches", "verdict"),
    [(0, (), "lost"), (1, (), "stuck"), (1, (StateBatch(0, 0, 0, 1),), "stuck"), (1, (StateBatch(0, 0, 2, 1),), "dropped")],
)
def test_what_is_left_at_the_end(count: int, batches: tuple[StateBatch, ...], verdict: str) -> None:
    history = ShareHistory(1)
    if count:
        deliver(history, 0, "a", count)
    with pytest.raises(AssertionError, match=verdict):
        history.judge(0, 1, 0, batches)
