"""Records that the coordinator logs by itself fit into batches of `max.message.bytes`, however many there are (I35)."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.groups.offsets.delete import FORGET_RETRY_MS, REWRITE_RETRY_MS
from tests.scenarios.groups_world import World

PARTITIONS = 60
BYTES_MAX = 300


def committed() -> World:
    world = World()
    for group in ("g", "h"):
        for topic in ("gone", "kept"):
            world.run(f"commit - {' '.join(f'{topic}-{index}=7' for index in range(PARTITIONS))} group={group}")
    world.log.batch_bytes_max = BYTES_MAX
    assert len(world.machine.shard.offsets.keys_of("g")) == 2 * PARTITIONS
    return world


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    world = committed()
    world.run("drop-topic gone")
    for group in ("g", "h"):
        assert {topic for topic, _ in world.machine.shard.offsets.keys_of(group)} == {"kept"}


@pytest.mark.parametrize("command", ["delete-group g", f"advance {8 * 86_400_000}"])
def test_a_group_goes_with_all_its_offsets(command: str) -> None:
    world = committed()
    world.run(command)
    assert not world.machine.shard.offsets.has_offsets("g") and "g" not in world.machine.shard.groups


def test_single_offsets_are_deleted() -> None:
    world = committed()
    said = world.run(f"delete-offset {' '.join(f'gone-{index}' for index in range(PARTITIONS))} group=g")
    assert not any("UNKNOWN_SERVER_ERROR" in line for line in said)
    assert {topic for topic, _ in world.machine.shard.offsets.keys_of("g")} == {"kept"}


# Refused for another reason than its size


def test_offsets_of_a_deleted_topic_are_forgotten_when_the_log_takes_batches_again() -> None:
    world = committed()
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.run("drop-topic gone")
    assert ("gone", 0) in world.machine.shard.offsets.keys_of("g")
    world.run(f"advance {FORGET_RETRY_MS}")
    assert {topic for topic, _ in world.machine.shard.offsets.keys_of("g")} == {"kept"}


def test_what_is_committed_to_a_topic_made_anew_is_not_forgotten_with_the_old_one() -> None:
    world = committed()
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.run("drop-topic gone")
    world.run("commit - gone-0=3 group=g")
    world.run(f"advance {FORGET_RETRY_MS}")
    assert [key for key in world.machine.shard.offsets.keys_of("g") if key[0] == "gone"] == [("gone", 0)]
    found = world.machine.shard.offsets.get("g", "gone", 0)
    assert found is not None and found.offset == 3


def test_a_deletion_is_forgotten_once_its_offsets_are() -> None:
    """A later retry for another topic must not delete offsets of a new topic with this name."""
    world = committed()
    world.run("drop-topic gone")
    assert not world.machine.shard.deleted_topics
    world.run("commit - gone-0=3 group=g")
    world.run("drop-topic kept")
    assert world.machine.shard.offsets.keys_of("g") == [("gone", 0)]


def test_an_offset_that_compaction_would_get_wrong_is_logged_once_more_however_often_the_log_refuses() -> None:
    world = World()
    world.run("txn-commit 5 t-0=1")
    world.run("commit - t-0=2")
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.run("marker 5 commit")
    assert world.machine.shard.offsets.rewrites
    world.run(f"advance {REWRITE_RETRY_MS}")
    assert not world.machine.shard.offsets.rewrites


def test_an_offset_that_is_to_be_forgotten_is_not_logged_once_more() -> None:
    """If the offset were logged again, it would look as if it was committed after the deletion."""
    world = World()
    world.run("txn-commit 5 t-0=1")
    world.run("commit - t-0=2")
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.run("marker 5 commit")
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.run("drop-topic t")
    world.run(f"advance {2 * FORGET_RETRY_MS}")
    shard = world.machine.shard
    assert not shard.offsets.has_offsets("g") and not shard.offsets.rewrites and not shard.deleted_topics
