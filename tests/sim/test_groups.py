"""Consumer groups in simulated clusters: each rule that is broken on purpose is found, and a seed repeats its run."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from tests.sim.__main__ import run_seeds
from tests.sim.group_faults import FAULTS, VERDICTS, catch
from tests.sim.group_history import GroupHistory
from tests.sim.group_world import GroupWorld
from tests.sim.seed_search import assert_noticed, run_until

SEEDS_TO_CATCH = 60
FIRST_SEEDS = {"accept_any_generation": 86, "give_before_revoked": 2}
"""Where to begin with each fault: it saves time, and nothing depends on it."""
WHERE = ("g", TopicPartition("t", 0))


def test_a_leader_whose_disk_fails_as_its_watermark_moves() -> None:
    """A leader's disk fails when its high watermark moves. After its restart it knows this high watermark, which its successors may not
    have reached yet.
    """
    assert run_seeds("groups", 3052, 1) == 0


def test_a_seed_repeats_its_run() -> None:
    """P13: two runs of a seed have the same events and the same bytes."""
    worlds = [GroupWorld(4), GroupWorld(4)]
    for world in worlds:
        world.run()
    first, second = worlds
    assert first.trace == second.trace


def test_the_runs_are_worth_something() -> None:
    """In the runs coordinators move, refuse requests meanwhile, and members continue afterwards."""

    def is_enough(world: GroupWorld) -> bool:
        refused = all(world.refusals.get(code) for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return refused and world.offsets.commits > 20 and world.offsets.terms > 10

    run_until(GroupWorld, range(1, 5), lambda worlds: any(map(is_enough, worlds)))


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """A run with the fault fails, with the verdict about this rule."""
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH, VERDICTS[name])


def history(*commits: int) -> GroupHistory:
    """Returns a history in which these offsets were committed one after the other."""
    groups = GroupHistory()
    for generation, end in enumerate(commits):
        term = groups.begin(WHERE, "m", generation, groups.floor(WHERE), groups.floor(WHERE))
        groups.acknowledge(groups.attempt(term, end))
    return groups


def test_a_commit_that_goes_back() -> None:
    """A member may read an old committed offset, if none of its later commits is accepted."""
    groups = history(3, 7)
    old = groups.begin(WHERE, "m", 9, 3, groups.floor(WHERE))
    for end, why in ((4, "7 had been acknowledged before "), (8, "it found 3, 7 had been acknowledged")):
        with pytest.raises(AssertionError, match=f"went back: .*{why}"):
            groups.acknowledge(groups.attempt(old, end))


def test_offsets_that_no_member_has_committed() -> None:
    groups = history(3)
    term = groups.begin(WHERE, "m", 1, 3, 3)
    groups.refuse(groups.attempt(term, 5))
    with pytest.raises(AssertionError, match="from nowhere"):
        groups.begin(WHERE, "n", 2, 5, 3)
    with pytest.raises(AssertionError, match="from nowhere"):
        groups.judge(WHERE, 5, [])


def test_commits_and_records_that_are_lost() -> None:
    groups = history(3, 7)
    with pytest.raises(AssertionError, match="lost commit"):
        groups.judge(WHERE, 3, [])
    groups.processed[WHERE] = {"a"}
    with pytest.raises(AssertionError, match=r"skipped: .* \['b'\]"):
        groups.judge(WHERE, 7, [(0, "a"), (4, "b"), (7, "c")])


def test_two_owners_in_one_generation() -> None:
    groups = GroupHistory()
    groups.own("g", 1, "m", [WHERE[1]])
    groups.own("g", 2, "n", [WHERE[1]])
    with pytest.raises(AssertionError, match="two owners"):
        groups.own("g", 2, "m", [WHERE[1]])
