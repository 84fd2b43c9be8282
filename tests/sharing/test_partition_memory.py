"""The memory of all share partitions that a broker leads is bounded, with the records in flight (I46)."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey
from ottla.machine.memory import CoordinatorMemory
from ottla.sharing.acknowledgement import Acknowledgement
from ottla.sharing.acquisition import Acquired
from ottla.sharing.partition_memory import IN_FLIGHT_WHEN_SHORT, PARTITION_BYTES, RUN_BYTES, PartitionMemory
from ottla.sharing.registry import SharePartitions
from ottla.sharing.share_partition import GroupTerms, SharePartition
from tests.fakes.persister import MemoryPersister
from tests.fakes.world import World

TERMS = GroupTerms(
    lock_duration_ms=1000, delivery_count_max=3, in_flight_max=50, offset_reset="latest", is_read_committed=False, may_renew=True
)
ACCEPT = 1
LOG = [(offset, offset, True) for offset in range(200)]


class PartitionMemoryWorld(World):
    """A broker whose memory is sufficient for `room` share partitions."""

    def __init__(self, room: int) -> None:
        self.persister = MemoryPersister()
        self.memory = PartitionMemory(CoordinatorMemory(room * PARTITION_BYTES))
        self.shares = SharePartitions(
            persister=self.persister, clock=self.clock, timers=self.timers, terms_of=lambda group_id: TERMS, memory=self.memory
        )

    def get(self, partition: int) -> SharePartition:
        key = SharePartitionKey("g", bytes(16), partition)
        self.persister.initialize(key, 0, -1, lambda code: None)
        return self.shares.get(key, 0, lambda reset: 0)

    def is_refused(self, partition: int) -> bool:
        with pytest.raises(ApiError) as refusal:
            self.get(partition)
        return refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE and len(list(self.shares)) == 2

    def fill(self) -> None:
        """Other share partitions use the rest of the memory."""
        self.memory.hold(1 << 40)

    def acquire(self, share: SharePartition, records: int) -> list[Acquired]:
        offset = share.fetch_offset(0)
        return share.acquire("a", offset, LOG[offset:], records, records, False) if offset is not None else []


def accept(share: SharePartition, first: int, last: int) -> None:
    share.acknowledge("a", [Acknowledgement(first, last, (ACCEPT,))], lambda code: None)


def test_i46_share_partitions_are_bounded_by_the_memory_that_they_take() -> None:
    world = PartitionMemoryWorld(room=2)
    first, _ = world.get(0), world.get(1)
    assert world.is_refused(2)
    assert world.get(0) is first, "what is there is served as before"
    first.close()
    assert world.get(2).is_loaded


def test_what_could_not_be_loaded_takes_nothing() -> None:
    world = PartitionMemoryWorld(room=2)
    world.persister.fail_with = ErrorCode.NOT_COORDINATOR
    world.shares.get(SharePartitionKey("g", bytes(16), 0), 0, lambda reset: 0)
    assert world.memory.held_bytes == 0


def test_runs_of_records_in_flight_count() -> None:
    world = PartitionMemoryWorld(room=2)
    share = world.get(0)
    assert world.memory.held_bytes == PARTITION_BYTES
    world.acquire(share, 10)
    one = world.memory.held_bytes
    assert one == PARTITION_BYTES + RUN_BYTES * len(share.flight.runs)
    accept(share, 4, 4)
    assert world.memory.held_bytes == one + 2 * RUN_BYTES
    accept(share, 0, 9)
    accept(share, 0, 3)
    accept(share, 5, 9)
    assert (share.flight.runs, world.memory.held_bytes) == ([], PARTITION_BYTES)


def test_runs_that_expire_count() -> None:
    world = PartitionMemoryWorld(room=2)
    share = world.get(0)
    world.acquire(share, 10)
    accept(share, 4, 4)
    world.timers.advance(TERMS.lock_duration_ms)
    assert world.memory.held_bytes == PARTITION_BYTES + RUN_BYTES * len(share.flight.runs)
    share.close()
    assert world.memory.held_bytes == 0


def test_i46_without_room_few_records_are_in_flight() -> None:
    """Members must acknowledge their records before they get more."""
    world = PartitionMemoryWorld(room=2)
    share = world.get(0)
    world.fill()
    assert sum(last - first + 1 for first, last, _ in world.acquire(share, 100)) == IN_FLIGHT_WHEN_SHORT
    assert world.acquire(share, 100) == []
    woken: list[bool] = []
    share.notifier.add_watcher(lambda: woken.append(True))
    accept(share, 0, IN_FLIGHT_WHEN_SHORT - 1)
    assert woken, "those that wait may acquire again"
    assert world.acquire(share, 100)[0].first_offset == IN_FLIGHT_WHEN_SHORT
