"""The table of share partitions: one for each group, partition and term of leadership."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey
from ottla.sharing.registry import SharePartitions
from ottla.sharing.share_partition import GroupTerms, SharePartition
from tests.fakes.persister import MemoryPersister
from tests.fakes.world import World

TOPIC = bytes(range(16))
TERMS = GroupTerms(
    lock_duration_ms=1000, delivery_count_max=3, in_flight_max=20, offset_reset="latest", is_read_committed=False, may_renew=True
)


class RegistryWorld(World):
    def __init__(self) -> None:
        self.persister = MemoryPersister()
        self.shares = SharePartitions(
            persister=self.persister, clock=self.clock, timers=self.timers, terms_of=lambda group_id: TERMS
        )

    def get(self, group_id: str = "g", partition: int = 0, leader_epoch: int = 0) -> SharePartition:
        key = SharePartitionKey(group_id, TOPIC, partition)
        if key not in self.persister.states:
            self.persister.initialize(key, 0, -1, lambda code: None)
        return self.shares.get(key, leader_epoch, lambda reset: 5)


def test_one_share_partition_for_each_group_and_partition() -> None:
    world = RegistryWorld()
    share = world.get()
    assert (share.is_loaded, share.flight.start) == (True, 5)
    assert world.get() is share is world.shares.find(share.key, 0)
    others = [world.get("h"), world.get(partition=1)]
    assert set(world.shares) == {share, *others}
    assert world.shares.of_group("g") == [share, others[1]]


def test_another_leader_epoch_makes_another_share_partition() -> None:
    world = RegistryWorld()
    old = world.get()
    assert world.shares.find(old.key, 1) is None
    new = world.get(leader_epoch=1)
    assert (old.is_closed, new.is_closed, world.shares.of_group("g")) == (True, False, [new])


def test_a_state_that_could_not_be_loaded_is_read_again() -> None:
    world = RegistryWorld()
    world.persister.fail_with = ErrorCode.NOT_COORDINATOR
    failed = world.shares.get(SharePartitionKey("g", TOPIC, 0), 0, lambda reset: 5)
    assert (failed.error, list(world.shares)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    world.persister.fail_with = None
    assert world.get().is_loaded


def test_closed_share_partitions_are_not_found() -> None:
    world = RegistryWorld()
    first, second, other = world.get(), world.get(partition=1), world.get("h")
    world.shares.close_where(lambda share: share.key.partition == 1)
    assert (first.is_closed, second.is_closed) == (False, True)
    closed: list[bool] = []
    for _ in range(2):
        world.shares.close_group("g", lambda: closed.append(first.is_closed))
    assert (closed, list(world.shares)) == ([True, True], [other])
    world.shares.close_all()
    assert (other.is_closed, list(world.shares), world.shares.of_group("h")) == (True, [], [])
