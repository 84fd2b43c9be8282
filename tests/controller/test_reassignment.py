"""Moves of replicas, as functions of partition values: which moves are under way, and which are complete."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.controller.leader_election import Standing
from ottla.controller.reassignment import begun, finished, is_moving, origin_of, target_of

BROKERS = Standing(live=range(5))
REPLICAS = st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True)


@given(REPLICAS, REPLICAS)
def test_a_move_knows_where_it_came_from_and_goes_to(origin: list[int], target: list[int]) -> None:
    start = PartitionMetadata(index=0, leader=origin[0], leader_epoch=0, replicas=tuple(origin), isr=tuple(origin))
    moving = begun(start, target, BROKERS, 1)
    if set(target) <= set(origin):
        assert not is_moving(moving)
        assert moving.replicas == tuple(target)
    else:
        assert is_moving(moving)
        assert target_of(moving) == tuple(target)
        assert set(origin_of(moving)) == set(origin)
        assert set(moving.replicas) == set(origin) | set(target)
    assert moving.leader in moving.isr
    assert set(moving.isr) <= set(moving.replicas)


@given(REPLICAS, REPLICAS)
def test_a_move_ends_when_all_of_the_target_are_in_sync(origin: list[int], target: list[int]) -> None:
    start = PartitionMetadata(index=0, leader=origin[0], leader_epoch=0, replicas=tuple(origin), isr=tuple(origin))
    moving = begun(start, target, BROKERS, 1)
    ended = finished(replace(moving, isr=moving.replicas), BROKERS, 1)
    assert (is_moving(ended), ended.replicas) == (False, tuple(target))
    assert ended.leader in target
    assert (ended.leader_epoch > 0) is not (set(origin) <= set(target)), "it rises exactly when replicas go"


@given(REPLICAS, REPLICAS, REPLICAS)
def test_what_is_no_replica_any_more_is_fenced_when_another_target_takes_the_place_of_the_first(
    origin: list[int], first: list[int], second: list[int]
) -> None:
    start = PartitionMetadata(index=0, leader=origin[0], leader_epoch=0, replicas=tuple(origin), isr=tuple(origin))
    moving = begun(start, first, BROKERS, 1)
    moved = begun(moving, second, BROKERS, 1)
    assert (moved.leader_epoch > moving.leader_epoch) is not (set(moving.replicas) <= set(moved.replicas))


def test_a_move_does_not_end_without_a_leader_to_take_over() -> None:
    moving = PartitionMetadata(index=0, leader=1, leader_epoch=0, replicas=(2, 1), isr=(1, 2), adding_replicas=(2,), removing_replicas=(1,))
    assert finished(moving, Standing(live=[1]), 1) is moving
