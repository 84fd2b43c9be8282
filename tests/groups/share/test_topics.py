"""A group coordinator that was replaced, and does not know it yet, neither deletes share states nor initializes them again, because its
successor may have initialized them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.share_state import SharePartitionKey, ShareState
from ottla.groups.modern.topics import LOOK_AGAIN_MS
from ottla.groups.settings import MEMBER_BYTES
from ottla.groups.share import heartbeat
from ottla.groups.share import topics as share_topics
from ottla.groups.share.group import topic_bytes
from ottla.machine.memory import CoordinatorMemory
from tests.scenarios.share_groups_world import World

RETRY_MS = 30_000
INITIALIZED, DELETED = "asked: initialize g t-0 ", "asked: delete g t-0"


@pytest.fixture
def world() -> World:
    """Returns a world in which a member has joined and the share coordinator has not answered yet."""
    world = World()
    world.run("topic t 1")
    world.run("persister hold")
    world.run("share a")
    return world


def asked(world: World, command: str) -> list[str]:
    return [line for line in world.run(command) if line.startswith("asked: ")]


def answer_of_a_higher_epoch(world: World) -> list[str]:
    """Lets the share coordinator refuse the request, because it has a state of a higher epoch."""
    key = SharePartitionKey("g", world.topics.topic_id("t"), 0)
    world.persister.states[key] = ShareState(state_epoch=9, leader_epoch=0, start_offset=5, delivery_complete_count=0)
    return asked(world, "persister release")


def test_what_a_group_of_the_same_name_left_is_deleted(world: World) -> None:
    calls = answer_of_a_higher_epoch(world)
    assert calls[0] == DELETED and calls[1].startswith(INITIALIZED)
    assert world.run("share-state")[0].endswith("initialized t-0")


def test_nothing_is_deleted_before_the_coordinator_has_committed_something(world: World) -> None:
    """The coordinator was replaced. Its successor has initialized the states with a higher epoch, and members read already."""
    world.run("hold")
    assert answer_of_a_higher_epoch(world) == []
    assert asked(world, "release")[0] == DELETED


def test_no_state_is_begun_again_before_the_coordinator_has_committed_something(world: World) -> None:
    """A second Initialize with the same epoch would reset the states."""
    world.run("persister fail=COORDINATOR_NOT_AVAILABLE")
    world.run("persister release")
    world.run("persister fine")
    world.run("hold")
    assert asked(world, f"advance {RETRY_MS}") == []
    assert asked(world, "release")[0].startswith(INITIALIZED)


def test_what_the_log_refuses_is_tried_again(world: World) -> None:
    world.run("refuse NOT_ENOUGH_REPLICAS")
    assert answer_of_a_higher_epoch(world) == []
    calls = asked(world, f"advance {RETRY_MS}")
    assert calls[0].startswith(INITIALIZED) and calls[1] == DELETED


def test_no_state_is_deleted_again_before_the_coordinator_has_committed_something(world: World) -> None:
    """The share coordinator did not answer a request to delete a topic's states. A successor may have deleted them, and initialized them
    again."""
    for command in ("persister release", "share a epoch=-1", "persister fail=COORDINATOR_NOT_AVAILABLE", "share-forget t"):
        world.run(command)
    assert "deleting" in world.run("share-state")[0]
    world.run("persister fine")
    world.run("hold")
    assert asked(world, f"advance {RETRY_MS}") == []
    assert asked(world, "release") == [DELETED]


def test_many_partitions_are_begun_in_turns() -> None:
    """Each initialization is a record of a share coordinator, which may be on this broker. Formerly ten thousand of them took a second in
    one iteration of the loop. The heartbeat itself sends none of many requests, because the first may create a topic of fifty
    partitions."""
    world, waiting = World(), list[Iterator[object]]()
    world.machine.shard.later = waiting.append
    world.run("topic t 50")
    assert asked(world, "share a") == [] and len(waiting) == 1
    for _ in range(10):
        next(waiting[0])
    assert len(world.persister.states) == 10
    assert not world.run("share-state")[0].endswith("initialized t-49")
    for _ in waiting[0]:
        pass
    world.run("advance 0")
    assert len(world.persister.states) == 50


def test_a_coordinator_that_is_replaced_begins_no_more_of_them() -> None:
    world, waiting = World(), list[Iterator[object]]()
    world.machine.shard.later = waiting.append
    world.run("topic t 50")
    world.run("share a")
    for _ in range(10):
        next(waiting[0])
    world.host.close()
    for _ in waiting[0]:
        pass
    assert len(world.persister.states) == 10


def test_answers_about_a_group_of_many_topics_are_logged_in_a_turn_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record with all topics of the group is logged when the states are requested, and again when they are initialized."""
    monkeypatch.setattr(share_topics, "TOPICS_AT_ONCE", 2)
    world, waiting = World(), list[Iterator[object]]()
    world.machine.shard.later = waiting.append
    for name in "tuv":
        world.run(f"topic {name} 1")
    world.run("share a topics=t,u,v")
    assert len(world.persister.states) == 3 and len(waiting) == 1, "they are begun"
    assert "initialized" not in world.run("share-state")[0], "and logged later"
    for _ in waiting.pop():
        pass
    assert "initialized t-0/u-0/v-0" in world.run("share-state")[0]


def limited(world: World, bytes_max: int) -> CoordinatorMemory:
    """Limits the memory of the groups to `bytes_max`."""
    shard, memory = world.machine.shard, CoordinatorMemory(bytes_max)
    shard.memory = memory.share(shard._sizes)
    return memory


def test_i46_what_is_remembered_of_topics_is_bounded() -> None:
    """A member with a short subscription may cause thousands of partitions to be stored, and the group keeps them after the member has
    left."""
    world = World()
    world.run("topic t 100")
    limited(world, 10 * MEMBER_BYTES)
    answers = [world.run(f"share a group=g{number}")[0] for number in range(9)]
    assert "COORDINATOR_NOT_AVAILABLE" not in answers[0]
    assert "COORDINATOR_NOT_AVAILABLE" in answers[-1]
    held = sum(group.held_bytes() for group in world.machine.shard.groups.values())
    assert 5 * MEMBER_BYTES < held <= 10 * MEMBER_BYTES


def test_what_was_remembered_of_topics_makes_room_when_its_group_goes() -> None:
    world = World()
    world.run("topic t 100")
    limited(world, MEMBER_BYTES + topic_bytes("t", 150))
    for command in ("share a group=g", "share a group=g epoch=-1"):
        world.run(command)
    assert "COORDINATOR_NOT_AVAILABLE" in world.run("share a group=h")[0]
    world.run("delete-group g")
    assert "COORDINATOR_NOT_AVAILABLE" not in world.run("share a group=h")[0]


def test_i46_altered_offsets_of_groups_without_members_are_bounded() -> None:
    world = World()
    world.run("topic t 100")
    limited(world, topic_bytes("t", 3))
    assert "COORDINATOR_NOT_AVAILABLE" not in world.run("share-alter t-0=5")[0]
    answer = world.run("share-alter t-0=7 " + " ".join(f"t-{number}=5" for number in range(1, 9)))[0]
    assert "t-0 NONE" in answer and answer.count("COORDINATOR_NOT_AVAILABLE") == 8
    assert "COORDINATOR_NOT_AVAILABLE" in world.run("share-alter t-0=5 group=h")[0]
    assert len(world.persister.states) == 1 and len(world.machine.shard.groups) == 1


def test_a_topic_that_grows_beyond_the_memory_does_not_refuse_the_members_that_are_there() -> None:
    """The states of the new partitions are initialized when memory is free again."""
    world = World()
    world.run("topic t 2")
    world.run("share a")
    memory = limited(world, 100)
    world.run("topic t 50")
    assert "COORDINATOR_NOT_AVAILABLE" not in world.run("share a")[0]
    assert len(world.persister.states) == 2
    memory.bytes_max = 1 << 30
    world.run(f"advance {LOOK_AGAIN_MS}")
    world.run("share a")
    assert len(world.persister.states) == 50


def test_a_group_reads_so_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of topics of a group is limited, because all of them are in one record."""
    monkeypatch.setattr(heartbeat, "TOPICS_MAX", 3)
    world = World()
    assert not any("INVALID" in line for line in world.run("share a topics=t,u"))
    assert any("INVALID_REQUEST" in line for line in world.run("share b topics=v,w"))
    assert not any("INVALID" in line for line in world.run("share b topics=u,v"))


@pytest.fixture
def unfinished(world: World) -> World:
    """Returns a world in which a deletion of states is logged and the share coordinator has not answered."""
    for command in ("persister release", "share a epoch=-1", "persister fail=COORDINATOR_NOT_AVAILABLE", "share-forget t"):
        world.run(command)
    assert "deleting" in world.run("share-state")[0]
    world.run("persister fine")
    return world


def test_a_coordinator_that_has_just_loaded_deletes_nothing_before_it_has_committed_something(unfinished: World) -> None:
    unfinished.run("hold")
    assert asked(unfinished, "restart") == []
    assert asked(unfinished, "release") == [DELETED]


def test_a_coordinator_that_has_just_loaded_asks_for_nothing_that_the_log_refuses(unfinished: World) -> None:
    unfinished.run("refuse NOT_ENOUGH_REPLICAS")
    assert asked(unfinished, "restart") == []
    assert asked(unfinished, f"advance {RETRY_MS}") == [DELETED]


def test_a_coordinator_that_has_just_loaded_begins_no_state_in_an_epoch_that_the_log_refuses(world: World) -> None:
    world.run("persister fine")
    world.run("refuse NOT_ENOUGH_REPLICAS")
    assert asked(world, "restart") == []
    assert asked(world, f"advance {RETRY_MS}")[0].startswith(INITIALIZED)
