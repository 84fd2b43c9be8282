"""What many transactional ids cost: 1,000 that are open at once take at most 10 MiB."""

from __future__ import annotations

import tracemalloc

from tests.scenarios.transactions_world import World

IDS = 1_000
BYTES_MAX = 10 << 20


def test_a_thousand_open_ids_are_small() -> None:
    """Each with ten partitions, as a Kafka Streams task has them."""
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
