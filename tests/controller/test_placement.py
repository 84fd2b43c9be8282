"""The placement of replicas: on distinct brokers, in distinct racks, with evenly spread leaders."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.placement import place
from tests.fakes.randomness import SeededRandom


@given(st.integers(1, 7), st.integers(1, 30), st.data(), st.integers(0, 99))
def test_replicas_are_distinct_and_leaders_even(brokers: int, partitions: int, data: st.DataObject, seed: int) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place(dict.fromkeys(range(brokers)), partitions, factor, SeededRandom(seed))
    assert len(placed) == partitions
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in range(brokers)) <= 1


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=8), st.integers(1, 20), st.data(), st.integers(0, 99))
def test_racks_are_apart_as_far_as_there_are_racks(racks: list[str], partitions: int, data: st.DataObject, seed: int) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(dict(enumerate(racks)), partitions, factor, SeededRandom(seed))
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks)))


def test_a_broker_without_a_rack_makes_all_placement_rackless() -> None:
    placed = place({0: "a", 1: None, 2: "b"}, 9, 2, SeededRandom(0))
    assert Counter(replicas[0] for replicas in placed) == {0: 3, 1: 3, 2: 3}


def test_followers_of_one_leader_are_spread() -> None:
    placed = place(dict.fromkeys(range(4)), 12, 2, SeededRandom(3))
    of_leader_0 = [replicas[1] for replicas in placed if replicas[0] == 0]
    assert len(set(of_leader_0)) == 3


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(ApiError) as caught:
        place({0: None}, 1, 2, SeededRandom(0))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_same_seed_places_alike() -> None:
    assert place({0: None, 1: None}, 5, 2, SeededRandom(8)) == place({0: None, 1: None}, 5, 2, SeededRandom(8))
