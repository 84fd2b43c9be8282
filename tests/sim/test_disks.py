"""Simulated clusters with damaged disks: every kind of damage occurs, and each rule that is broken on purpose is found."""

from __future__ import annotations

import pytest

from tests.sim.lying_faults import FAULTS, VERDICTS, catch
from tests.sim.lying_world import LyingWorld, RottenWorld
from tests.sim.seed_search import assert_noticed, run_until

SEEDS_TO_CATCH = 100
FIRST_SEEDS = {"cut_below_watermark": 208, "scrub_finds_nothing": 2}
"""Where to begin with each fault: it saves time, and nothing depends on it."""
BUSY_LYING_SEEDS, BUSY_ROTTEN_SEEDS = (25, 26, 27, 29), (72, 90, 130, 10, 11, 21)
"""Together they show every kind of damage. Others are tried after them, and nothing depends on where this begins."""


def test_damage_of_segments_is_repaired() -> None:
    def is_enough(found: list[RottenWorld]) -> bool:
        kinds = {kind for world in found for kind, count in world.lying_disks.counts.items() if count}
        nodes = [broker.node for world in found for broker in world.brokers.values() if broker.node is not None]
        return kinds == {*RottenWorld.lies} and any(node.housekeeping.repairs.repaired for node in nodes)

    run_until(RottenWorld, (*BUSY_ROTTEN_SEEDS, *range(1, 60)), is_enough)


def test_every_kind_of_damage_is_there() -> None:
    def is_enough(worlds: list[LyingWorld]) -> bool:
        done = {kind for world in worlds for kind, count in world.lying_disks.counts.items() if count}
        return done == {*LyingWorld.lies}

    run_until(LyingWorld, (*BUSY_LYING_SEEDS, *range(30, 70)), is_enough)


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """A run with the fault fails, with the verdict about this rule."""
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS[name]), SEEDS_TO_CATCH, VERDICTS[name])
