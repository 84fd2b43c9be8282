"""The memory of many transactional ids: 1,000 open transactions take at most 10 MiB."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import pytest

from ottla.machine.memory import CoordinatorMemory
from tests.fakes.coordinator_settings import transaction_settings
from tests.scenarios.transactions_world import World

IDS = 1_000
BYTES_MAX = 10 << 20


def test_a_thousand_open_ids_are_small() -> None:
    """Each transaction has ten partitions, like the transaction of a Kafka Streams task."""
    world = World()
    world.run("init A id=warm-up")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(IDS):
            open_transaction(world, f"application-{number:04}-thread-1")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(world.host.machine.shard.ongoing) == IDS
    assert after - before < BYTES_MAX, f"{(after - before) / IDS:.0f} bytes each"


def open_transaction(world: World, transactional_id: str) -> None:
    world.run(f"init A id={transactional_id}")
    world.run(f"add A id={transactional_id} " + " ".join(f"t-{number}" for number in range(10)))


def test_i46_ids_are_bounded_by_the_memory_that_they_take() -> None:
    """Without this limit each coordinator could have a million ids of a thousand letters."""
    world = World(memory=CoordinatorMemory(100_000))
    answers = [answer_of(world, f"init A id={number:x<1000}") for number in range(100)]
    assert ["COORDINATOR_NOT_AVAILABLE" in answer for answer in answers] == [False] * 50 + [True] * 50
    assert len(world.host.machine.shard.transactions) == 50
    assert "NONE" in answer_of(world, f"init A id={0:x<1000}"), "an id that is known goes on"


def test_i46_partitions_of_open_transactions_are_bounded() -> None:
    world = World(memory=CoordinatorMemory(1_000_000))
    partitions = " ".join(f"t-{number}" for number in range(1000))
    answers = []
    for number in range(6):
        world.run(f"init {number} id=x{number}")
        answers.append(answer_of(world, f"add {number} id=x{number} {partitions}"))
    assert ["COORDINATOR_NOT_AVAILABLE" in answer for answer in answers] == [False] * 3 + [True] * 3
    assert "NONE" in answer_of(world, "add 0 id=x0 t-1 t-2"), "what is in it already adds nothing"
    world.run("end 0 id=x0 commit")
    assert "NONE" in answer_of(world, f"add 5 id=x5 {partitions}")


def test_ids_that_were_loaded_count() -> None:
    world = World(memory=CoordinatorMemory(100_000))
    for number in range(50):
        world.run(f"init A id={number:x<1000}")
    world.run("restart")
    assert world.host.machine.shard.memory.bytes == 100_000
    assert "COORDINATOR_NOT_AVAILABLE" in answer_of(world, f"init A id={50:x<1000}")


def users(world: World, owner: str, ids: range) -> int:
    """Requests new ids of 1,000 letters for a user, as the handler does. Returns how many are accepted."""
    given = 0
    for number in ids:
        transactional_id = f"{number:x<1000}"
        if "NONE" in answer_of(world, f"init A id={transactional_id} owner={owner}"):
            given += 1
            client = SimpleNamespace(client_id="c", connection=SimpleNamespace(host="h", owner=owner))
            world.coordinators.note_client(transactional_id, client)
    return given


@pytest.mark.parametrize("bound", ["bytes", "ids"])
def test_i46_one_user_does_not_take_all(bound: str) -> None:
    if bound == "bytes":
        world = World(memory=CoordinatorMemory(200_000))
    else:
        world = World(transaction_settings(transactions_max=100))
    assert users(world, "User:mallory", range(1000, 1200)) == 75, "three quarters, as long as there is no other"
    assert users(world, "User:mallory", range(1200, 1300)) == 0
    assert users(world, "User:alice", range(2000, 2100)) >= 12, "half of what was left"
    assert users(world, "User:bob", range(3000, 3100)) >= 6
    assert "NONE" in answer_of(world, f"init A id={1000:x<1000} owner=User:mallory"), "what is there goes on"


def test_ids_of_before_a_restart_have_no_owner_until_they_are_used() -> None:
    world = World(memory=CoordinatorMemory(200_000))
    assert users(world, "User:mallory", range(1000, 1200)) == 75
    before = world.host.machine.shard.memory
    world.run("restart")
    before.end()
    assert users(world, "User:alice", range(2000, 2100)) >= 12
    assert users(world, "User:mallory", range(1000, 1075)) == 75
    assert users(world, "User:mallory", range(1200, 1300)) < 12, "counted again within a thousand requests"
    assert users(world, "User:mallory", range(1300, 1400)) == 0


def test_ids_of_a_user_that_have_expired_are_not_counted() -> None:
    world = World(transaction_settings(transactions_max=100))
    assert users(world, "User:alice", range(1000, 1100)) == 75
    shard = world.host.machine.shard
    for transactional_id in list(shard.transactions)[:70]:
        del shard.transactions[transactional_id]
    assert users(world, "User:bob", range(2000, 2070)) == 70
    assert users(world, "User:alice", range(3000, 3010)) == 10


def answer_of(world: World, command: str) -> str:
    return world.run(command)[0]
