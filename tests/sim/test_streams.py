"""Streams groups in simulated clusters: each rule that is broken on purpose is found."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from tests.sim.seed_search import assert_noticed, run_until
from tests.sim.streams_faults import FAULTS, VERDICTS, catch
from tests.sim.streams_world import StreamsWorld

SEEDS_TO_CATCH = 60
FIRST_SEEDS = {"internal_topics_tried_once": 97, "commit_of_any_epoch": 10, "revocation_forgotten": 2, "empty_group_begins_anew": 12}
"""Where to begin with each fault: it saves time, and nothing depends on it."""
BUSY_SEEDS = (1, 3)


def test_the_runs_are_worth_something() -> None:
    """In the runs members use one coordinator after the other, are refused while it moves, are replaced, and commit."""

    def is_enough(worlds: list[StreamsWorld]) -> bool:
        moved, replaced, commits = (sum(counts) for counts in zip(*map(changes, worlds), strict=True))
        refused = {code for world in worlds for code in world.refusals}
        is_refused = refused >= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        return is_refused and moved > 3 and replaced > 1 and commits > 20

    run_until(StreamsWorld, (*BUSY_SEEDS, *range(1, 25)), is_enough)


def changes(world: StreamsWorld) -> tuple[int, int, int]:
    return world.moved, world.replaced, world.offsets.commits


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """A run with the fault fails, with the verdict about this rule."""
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH, VERDICTS[name])
