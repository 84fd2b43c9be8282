"""The simulation of share groups with a dead-letter topic: each rule that is broken on purpose is found."""

from __future__ import annotations

import pytest

from ottla.sharing.acknowledgement import ACCEPT, REJECT
from tests.sim.seed_search import assert_noticed, run_until
from tests.sim.share_history import LOCK_MS, Holder, ShareHistory
from tests.sim.share_letters import FAULTS, VERDICTS, LetterWorld, catch

SEEDS_TO_CATCH = 60
FIRST_SEEDS = {"copy_before_stored": 4, "archive_before_copied": 65, "forget_copies": 24}
"""Where to begin with what needs a rare turn of events: it saves time, and nothing depends on it."""


class Share:
    state_epoch = 0


def test_the_runs_are_worth_something() -> None:
    """In the runs brokers lose power, and many dead letters are written."""
    run_until(LetterWorld, range(1, 8), lambda worlds: any(one.crashes > 1 and one.counts()["letters"] > 30 for one in worlds))


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH, VERDICTS[name])


def test_a_record_that_is_copied_is_not_delivered_again() -> None:
    history = ShareHistory(1)
    history.copying(0, 0, 5, 6)
    history.copying(0, 9, 7, 7)  # from another era
    holder = Holder("a", LOCK_MS, Share, 1)
    history.acquired(0, 7, holder, 0, 0)
    with pytest.raises(AssertionError, match="copied"):
        history.acquired(0, 6, holder, 0, 0)


def test_each_rejected_record_has_a_letter() -> None:
    history = ShareHistory(1)
    history.settled(0, 0, 3, REJECT, 1)
    history.settled(0, 0, 4, ACCEPT, 1)
    history.judge_letters(0, {3})
    with pytest.raises(AssertionError, match="no letter: s-0@3"):
        history.judge_letters(0, {4})
    history.deleted(0, 4)
    history.judge_letters(0, set())
