"""The target of a large share group is made in time slices. Heartbeats are answered meanwhile, and a joining member waits for the
target."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.groups.modern import update as epoch_update
from ottla.groups.share import assignor
from ottla.groups.share.group import ShareGroup
from tests.groups.turns_world import TurnsWorld
from tests.instructions import instructions
from tests.scenarios import share_groups_world
from tests.scenarios.groups_text import FixedTopics

MEMBERS = 20
TOPICS = [f"topic-{number:03}" for number in range(200)]


class ShareTurnsWorld(TurnsWorld, share_groups_world.World):
    """The world of the tests: their group, and topics with two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = self.machine.shard.topics = FixedTopics(dict.fromkeys(TOPICS, 2))

    @property
    def group(self) -> ShareGroup:
        group = self.machine.shard.groups["g"]
        assert isinstance(group, ShareGroup)
        return group


def reads(number: int) -> str:
    """Returns a subscription to half of the topics, a different half for each member."""
    return ",".join(TOPICS[(number * 7 + place) % len(TOPICS)] for place in range(100))


def large_group(world: ShareTurnsWorld) -> None:
    for number in range(MEMBERS):
        world.run(f"share m{number} epoch=0 topics={reads(number)}")
        for _ in range(2):  # the second target is for the partitions that have become ready meanwhile
            world.finish()
            world.run("advance 1")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ShareTurnsWorld:
    monkeypatch.setattr(epoch_update, "STEPS_AT_ONCE", 2)
    monkeypatch.setattr(assignor, "DEALT_PER_STEP", 100)
    made = ShareTurnsWorld()
    large_group(made)
    return made


def test_heartbeats_are_answered_while_a_target_is_made(world: ShareTurnsWorld) -> None:
    epoch = world.group.target_epoch
    assert world.run(f"share late epoch=0 topics={reads(50)}")[0].startswith("log:"), "who joins waits for what it is to read"
    assert world.waiting and world.group.epoch > epoch
    for number in range(MEMBERS):
        lines = world.run(f"share m{number}")
        assert any(line.startswith(f"m{number}: epoch={epoch}") for line in lines), lines
    assert world.group.target_epoch == epoch and len(world.waiting) == 1, "one update at a time"
    world.finish()
    assert world.group.target_epoch == world.group.epoch
    lines = world.run("advance 1")
    assert any(line.startswith(f"late: epoch={world.group.epoch} has topic-") for line in lines), lines


def test_who_joins_does_not_wait_for_ever(world: ShareTurnsWorld) -> None:
    world.run(f"share late epoch=0 topics={reads(50)}")
    lines = world.run("advance 2001")
    assert any(line.startswith("late: epoch=") and line.endswith("has nothing") for line in lines), lines


def test_no_step_is_much_work(world: ShareTurnsWorld) -> None:
    """Counts the instructions of each step: a hundred thousand take some milliseconds."""
    assert instructions(lambda: world.run(f"share late epoch=0 topics={reads(50)}")) < 500_000
    costs = []
    while world.waiting:
        costs.append(instructions(world.step))
    assert len(costs) > 10 and max(costs) < 200_000


def test_the_target_is_that_of_an_update_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, in_turns = ShareTurnsWorld(), ShareTurnsWorld()
    for made in (at_once, in_turns):
        monkeypatch.setattr(epoch_update, "STEPS_AT_ONCE", 1 << 30)
        large_group(made)
    at_once.run(f"share late epoch=0 topics={reads(50)}")
    monkeypatch.setattr(epoch_update, "STEPS_AT_ONCE", 2)
    in_turns.run(f"share late epoch=0 topics={reads(50)}")
    assert in_turns.waiting and not at_once.waiting
    in_turns.finish()
    assert in_turns.group.target["late"]
    assert (in_turns.group.target, in_turns.group.target_epoch) == (at_once.group.target, at_once.group.target_epoch)


def test_a_coordinator_that_is_replaced_does_no_more_of_it(world: ShareTurnsWorld) -> None:
    world.run(f"share late epoch=0 topics={reads(50)}")
    world.step()
    world.run("restart")
    logged = len(world.log.entries)
    assert not world.step() and len(world.log.entries) == logged


def test_a_refusal_in_between_is_made_up_for(world: ShareTurnsWorld) -> None:
    world.run(f"share late epoch=0 topics={reads(50)}")
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.finish()
    assert world.group.target_epoch < world.group.epoch and not world.machine.shard.updates
    world.run("share m0")
    world.finish()
    assert world.group.target_epoch == world.group.epoch and world.group.target["late"]


def test_a_member_that_leaves_meanwhile_gets_nothing(world: ShareTurnsWorld) -> None:
    world.run(f"share late epoch=0 topics={reads(50)}")
    world.run("share late epoch=-1")
    world.finish()
    assert "late" not in world.group.target
    world.run("share m0")
    world.finish()
    assert world.group.target_epoch == world.group.epoch
