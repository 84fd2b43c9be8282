"""Share groups in simulated clusters: each rule that is broken on purpose is found."""

from __future__ import annotations

import pytest

from tests.sim.seed_search import assert_noticed
from tests.sim.share_cluster import ShareClusterWorld
from tests.sim.share_cluster_faults import FAULTS, VERDICTS, catch
from tests.sim.share_operator import OPERATIONS

SEEDS_TO_CATCH = 20
FIRST_SEEDS = {"write_of_earlier_state": 22}
"""Where to begin with each fault: it saves time, and nothing depends on it."""


def test_runs_are_worth_something() -> None:
    """In the runs records are delivered and accepted, unaccepted records are delivered again, leaders change, and operators alter offsets.
    """
    accepted = repeated = moved = 0
    operated: set[str] = set()
    for seed in range(1, SEEDS_TO_CATCH):
        world = ShareClusterWorld(seed)
        world.run()
        accepted, repeated = accepted + world.shares.accepted, repeated + world.shares.repeated
        moved += any(len(set(leaders.values())) > 1 for leaders in world.checks.store.leaders.values())
        operated.update(world.operated)
        if accepted > 20 and repeated > 3 and moved and len(operated) == len(OPERATIONS):
            return
    pytest.fail(f"{accepted} accepted, {repeated} repeated, {moved} moved, {operated}")


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """A run with the fault fails, with the verdict about this rule."""
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH, VERDICTS[name])
