"""Static members, changes of the protocol and operators in simulated clusters: each rule that is broken on purpose is found."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from tests.sim.group_history import GroupHistory
from tests.sim.membership_faults import FAULTS, VERDICTS, catch
from tests.sim.membership_world import MembershipWorld
from tests.sim.seed_search import assert_noticed, run_until

SEEDS_TO_CATCH = 60
FIRST_SEEDS = {
    "former_process_not_fenced": 19,
    "offsets_set_in_use": 15,
    "restart_loses_assignment": 17,
    "downgrade_against_policy": 32,
    "upgrade_forgets_assignments": 30,
    "deletion_keeps_offsets": 10,
}
"""Where to begin with each fault: it saves time, and nothing depends on it."""
BUSY_SEEDS = (25, 26)
"""Together they show what a run has to show; others are tried after them, and nothing depends on where this begins."""
WHERE = ("g", TopicPartition("t", 0))


def test_the_runs_are_worth_something() -> None:
    """In the runs groups are converted in both directions, members are replaced, and setting offsets succeeds and is refused."""

    def is_enough(worlds: list[MembershipWorld]) -> bool:
        converted = [sum(counts) for counts in zip(*(world.conversions.values() for world in worlds), strict=True)]
        replaced, altered, refused = (sum(counts) for counts in zip(*map(changes, worlds), strict=True))
        return all(converted) and replaced > 1 and altered > 0 and refused > 0

    run_until(MembershipWorld, (*BUSY_SEEDS, *range(1, 25)), is_enough)


def changes(world: MembershipWorld) -> tuple[int, int, int]:
    return world.replaced, int(world.altered), int(world.refused)


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """A run with the fault fails, with the verdict about this rule."""
    assert_noticed(name, catch(name, SEEDS_TO_CATCH, FIRST_SEEDS.get(name, 1)), SEEDS_TO_CATCH, VERDICTS[name])


def test_a_former_process_that_commits() -> None:
    """If two processes of a static member run, the one that asked for its member id later has replaced the other one."""
    groups = GroupHistory()
    groups.sit(("g", "i"), "old", 0, 10)
    groups.sit(("g", "i"), "new", 20, 30)
    assert groups.is_former("g", "i", "old") and not groups.is_former("g", "i", "new") and not groups.is_former("g", None, "old")
    term = groups.begin(WHERE, "old", 1, 0, 0)
    with pytest.raises(AssertionError, match="former: old commits"):
        groups.acknowledge(groups.attempt(term, 3, is_former=True))


def test_a_commit_of_before_an_operator_set_the_offset() -> None:
    """A commit that began while the operator set the offset may belong to the time before or after it."""
    groups = GroupHistory()
    before = groups.begin(WHERE, "m", 1, 0, 0)
    groups.acknowledge(groups.attempt(before, 7))
    groups.alter(WHERE, 3)
    between = groups.begin(WHERE, "m", 1, 3, groups.floor(WHERE))
    groups.begin_era(WHERE, 3)
    after = groups.begin(WHERE, "n", 2, 3, groups.floor(WHERE))
    groups.acknowledge(groups.attempt(after, 5))
    groups.acknowledge(groups.attempt(between, 4))
    groups.judge(WHERE, 5, [])
    with pytest.raises(AssertionError, match="altered in use: m commits 8"):
        groups.acknowledge(groups.attempt(before, 8))


def test_an_assignment_that_changes_within_a_generation() -> None:
    groups = GroupHistory()
    groups.keep(("g", 1, "i"), [WHERE[1]])
    groups.forget_owners("g")
    groups.keep(("g", 1, "i"), [])
    with pytest.raises(AssertionError, match="not kept: "):
        groups.keep(("g", 1, "i"), [WHERE[1]])
