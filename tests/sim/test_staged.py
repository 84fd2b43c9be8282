"""The simulation of staged records: each rule that is broken on purpose is found, and a seed repeats its run."""

from __future__ import annotations

import pytest

from tests.sim.seed_search import assert_noticed, run_until
from tests.sim.staged_world import FAULTS, StagedWorld, catch

SEEDS_TO_CATCH = 60
FIRST_SEEDS = {"skip_manifest_check": 14, "look_up_the_stage_first": 6}
"""Where to begin with what needs a rare turn of events: it saves time, and nothing depends on it."""


def trace(seed: int) -> tuple[object, ...]:
    world = StagedWorld(seed)
    world.run()
    return world.events, world.crashes, world.attached, world.retries, world.refusals, sorted(world.history.seen.items())


def test_a_seed_repeats_its_run() -> None:
    assert trace(2) == trace(2)


def test_the_runs_are_worth_something() -> None:
    """In the runs manifests are attached, attach requests are repeated after crashes, and staged chunks are lost."""

    def is_enough(world: StagedWorld) -> bool:
        return len(world.history.seen) > 50 and world.crashes > 0 and world.attached > 10 and world.retries > 0 and world.refusals > 0

    run_until(StagedWorld, range(1, 12), lambda worlds: any(map(is_enough, worlds)))


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS[name]), SEEDS_TO_CATCH)
