"""A crash has lost the end of a partition's log, and the stored share state has offsets beyond it. The share coordinator is the real
one."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.share_state import ShareState, StateBatch
from ottla.sharing.acknowledgement import ACCEPT, Acknowledgement
from ottla.sharing.acquisition import Acquired
from ottla.sharing.commands import InitializeState, WriteState
from ottla.sharing.persister import SharePersister
from ottla.sharing.share_partition import GroupTerms, SharePartition
from tests.fakes.peers import NO_OTHER_SHARE_COORDINATORS
from tests.fakes.share_coordinators import share_coordinators
from tests.sharing.state_world import KEY, StateWorld

TERMS = GroupTerms(
    lock_duration_ms=1000, delivery_count_max=10, in_flight_max=50, offset_reset="latest", is_read_committed=False, may_renew=True
)


def share_over(world: StateWorld, leader_epoch: int) -> SharePartition:
    coordinators = share_coordinators(world.clock, world.timers)
    coordinators.attach(0, world.host)
    persister = SharePersister(coordinators, lambda _topic, done: done(ErrorCode.NONE), world.timers, NO_OTHER_SHARE_COORDINATORS)
    share = SharePartition(
        KEY, leader_epoch, persister=persister, clock=world.clock, timers=world.timers, terms=lambda: TERMS,
        find_start=lambda _reset: 0, on_closed=lambda _share: None,
    )  # fmt: skip
    share.load()
    assert share.is_loaded
    return share


def stored_state(world: StateWorld) -> ShareState:
    return world.machine.shard.partitions[KEY].state


def test_new_records_at_the_offsets_of_removed_ones_are_delivered() -> None:
    world = StateWorld()
    world.answer(InitializeState(KEY, 1, 0))
    known = (StateBatch(10, 11, 0, 2), StateBatch(15, 19, 2, 1))
    world.answer(WriteState(KEY, ShareState(1, -1, 10, 5, known)))
    share = share_over(world, 1)
    share.forget_from(17)
    assert stored_state(world) == ShareState(1, 1, 10, 2, (StateBatch(10, 11, 0, 2), StateBatch(15, 16, 2, 1)))
    taken = share.acquire("a", 10, iter([(10, 30, True)]), 500, 500, False)
    assert taken == [Acquired(10, 11, 3), Acquired(12, 14, 1), Acquired(17, 30, 1)]
    codes: list[ErrorCode] = []
    share.acknowledge("a", [Acknowledgement(17, 18, [ACCEPT])], codes.append)
    world.crash()
    assert codes == [ErrorCode.NONE]
    again = share_over(world, 2)
    assert again.acquire("b", 10, iter([(10, 30, True)]), 500, 500, False)[-1].first_offset == 19


def test_the_start_goes_back_with_the_log() -> None:
    world = StateWorld()
    world.answer(InitializeState(KEY, 1, 10))
    share = share_over(world, 1)
    share.forget_from(4)
    assert stored_state(world) == ShareState(1, 1, 4, 0)
    assert share.acquire("a", 4, iter([(4, 5, True)]), 500, 500, False) == [Acquired(4, 5, 1)]
    share.acknowledge("a", [Acknowledgement(4, 5, [ACCEPT])], lambda code: None)
    world.crash()
    assert share_over(world, 2).fetch_offset(0) == 6
