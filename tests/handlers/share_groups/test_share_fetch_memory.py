"""ShareFetch and memory: a share partition for which there is no memory yet, and the release of all that belonged to an answered
request."""

from __future__ import annotations

import gc

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.share_groups.acquiring import Reading
from ottla.sharing.partition_memory import PARTITION_BYTES
from tests.handlers.share_world import ShareWorld, acquired, codes


def test_i46_there_is_no_room_for_a_share_partition_at_first() -> None:
    """The partition gets an empty answer, because an error would end a Java consumer."""
    world = ShareWorld(partitions=2)
    world.append(10)
    world.append(10, partition=1)
    world.memory.bytes_max = PARTITION_BYTES
    answer = world.fetch(0, partitions=(0, 1))
    assert (acquired(answer), codes(answer)) == ({0: [(0, 9, 1)]}, {0: ErrorCode.NONE, 1: ErrorCode.NONE})
    pending = world.fetch(1)
    world.timers.advance(500)
    assert acquired(pending.response) == {}
    world.memory.bytes_max *= 3
    assert acquired(world.fetch(2)) == {1: [(0, 9, 1)]}


@pytest.mark.parametrize("max_wait_ms", [0, 500])
def test_what_was_answered_is_let_go_without_a_collection(max_wait_ms: int) -> None:
    """A session may have thousands of partitions, each a few hundred bytes in a request and its answer."""
    world = ShareWorld(partitions=2)
    gc.collect()
    gc.disable()
    try:
        before = readings()
        world.fetch(0, partitions=(0, 1), max_wait_ms=max_wait_ms)
        world.timers.advance(1000)
        assert readings() == before
    finally:
        gc.enable()


def readings() -> int:
    return sum(type(thing) is Reading for thing in gc.get_objects())
