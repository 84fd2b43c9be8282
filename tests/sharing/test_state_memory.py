"""The memory of all stored share states of a broker is bounded, however many groups there are (I46)."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.machine.memory import CoordinatorMemory
from ottla.sharing.commands import DeleteState, InitializeState, StateResult, WriteState
from ottla.sharing.persister import RETRIABLE
from ottla.sharing.state_room import RESERVED_BATCHES
from ottla.sharing.state_shard import BATCH_BYTES, STATE_BYTES, state_bytes
from tests.sharing.state_world import ORDERS, StateWorld

NONE, REFUSED = ErrorCode.NONE, ErrorCode.POLICY_VIOLATION


def key_of(number: int) -> SharePartitionKey:
    return SharePartitionKey(f"group-{number}", ORDERS, 0)


def begin(world: StateWorld, number: int) -> StateResult:
    return world.answer(InitializeState(key_of(number), 1, 0))


def world_of(states: int) -> StateWorld:
    """Returns a world with memory for this many states."""
    return StateWorld(memory=CoordinatorMemory(states * state_bytes(key_of(0)), "states of share groups"))


def test_i46_states_are_bounded_by_the_memory_that_they_take() -> None:
    world = world_of(5)
    assert [begin(world, number).code for number in range(9)] == [NONE] * 5 + [REFUSED] * 4
    assert len(world.machine.shard.partitions) == 5
    assert "states of share groups" in (begin(world, 5).message or "")


def test_states_that_are_there_go_on() -> None:
    world = world_of(1)
    begin(world, 0)
    assert world.answer(InitializeState(key_of(0), 2, 7)).code is NONE
    assert world.answer(WriteState(key_of(0), ShareState(2, -1, 7, 1, (StateBatch(9, 9, 2, 1),)))).code is NONE
    assert begin(world, 1).code is REFUSED


def test_a_deleted_state_makes_room() -> None:
    world = world_of(1)
    begin(world, 0)
    assert begin(world, 1).code is REFUSED
    world.answer(DeleteState(key_of(0)))
    assert begin(world, 1).code is NONE


def test_states_of_deleted_topics_make_room() -> None:
    world = world_of(1)
    begin(world, 0)
    world.topics.known.remove(ORDERS)
    world.host.run(world.machine.forget_topics)
    assert world.machine.shard.memory.bytes == 0


def test_states_that_were_loaded_count() -> None:
    world = world_of(2)
    for number in range(2):
        begin(world, number)
    world.crash()
    assert world.machine.shard.memory.bytes == 2 * state_bytes(key_of(0))
    assert begin(world, 2).code is REFUSED


def test_states_of_all_shards_count() -> None:
    """The limit applies to all shards together, because a group's partitions are spread over the shards of `__share_group_state`."""
    world = world_of(2)
    other = StateWorld(memory=world.memory)
    assert [begin(world, 0).code, begin(other, 1).code, begin(world, 2).code] == [NONE, NONE, REFUSED]


def test_batches_and_long_names_count() -> None:
    world = world_of(10)
    long = SharePartitionKey("é" * 1000, ORDERS, 0)
    world.answer(InitializeState(long, 1, 0))
    batches = tuple(StateBatch(offset, offset, 2, 1) for offset in range(1, 9, 2))
    world.answer(WriteState(long, ShareState(1, -1, 0, 4, batches)))
    assert world.machine.shard.memory.bytes == STATE_BYTES + 4000 + 4 * BATCH_BYTES
    world.answer(WriteState(long, ShareState(1, -1, 9, 0)))
    assert world.machine.shard.memory.bytes == STATE_BYTES + 4000 + RESERVED_BATCHES * BATCH_BYTES


def test_a_refusal_is_not_asked_again_at_once() -> None:
    """A request that waits for its next attempt takes as much memory as the refused state."""
    assert REFUSED not in RETRIABLE
