"""Deletions of records in simulated clusters: each rule that is broken on purpose is found."""

from __future__ import annotations

import pytest

from tests.sim.deletion_faults import FAULTS, VERDICTS, catch
from tests.sim.deletion_world import DELETED, DeletionWorld
from tests.sim.seed_search import assert_noticed, run_until

SEEDS_TO_CATCH = 20
FIRST_SEEDS = {"answered_before_noted": 3, "answered_before_followers": 2, "followers_keep_their_start": 2}
"""Where to begin with each fault. A noted start outlasts the end of a process, so only a loss of power shows whether it was synced."""


def test_the_runs_are_worth_something() -> None:
    """In the runs records are deleted while leaders change, and some deletions are not answered."""

    def is_enough(worlds: list[DeletionWorld]) -> bool:
        return (
            sum(world.deletions for world in worlds) > 20
            and any(world.asked > world.answered for world in worlds)
            and sum(len(world.checks.store.leaders[DELETED]) > 2 for world in worlds) > 1
        )

    run_until(DeletionWorld, range(1, 60), is_enough)


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """A run with the fault fails, with the verdict about this rule."""
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH, VERDICTS[name])
