"""Share groups in simulated clusters: nothing is wrong in what is right, what is broken on purpose is found, a seed repeats its run."""

from __future__ import annotations

import pytest

from tests.sim.__main__ import main, run_cluster_seeds
from tests.sim.seed_search import assert_noticed
from tests.sim.share_cluster import ShareClusterWorld
from tests.sim.share_cluster_faults import FAULTS, VERDICTS, catch
from tests.sim.share_operator import OPERATIONS

SEEDS = 3
SEEDS_TO_CATCH = 20
FIRST_SEEDS = {"write_of_replaced_leader": 80, "write_of_earlier_state": 261}
"""Where to begin with each fault: it saves time, and nothing depends on it."""


def test_what_is_right_has_no_fault() -> None:
    assert run_cluster_seeds(1, SEEDS, ShareClusterWorld) == 0


def test_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shares", "--seeds", "201-201"]) == 0
    assert "1 clusters from 201" in capsys.readouterr().out


def test_runs_are_worth_something() -> None:
    """Records are delivered, accepted, and delivered again where they were not, while leaders change and operators alter what was read."""
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
    """By the verdict that names it."""
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH, VERDICTS[name])
