"""What the coordinator logs of its own accord fits into batches of `max.message.bytes`, however much it is (I35)."""

from __future__ import annotations

import pytest

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
