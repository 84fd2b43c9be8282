"""Plans for draining and rebalancing: what holds for every cluster."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.analysis.replica_plans import BYTES_MIN, BYTES_TOLERANCE, Plan, bytes_on, drained, handed_over, rebalanced
from ottla.base.types import TopicPartition

BROKERS = range(1, 7)
NO_RACKS: dict[int, str | None] = {}


def placed(*replicas: list[int], topic: str = "t") -> Plan:
    return {TopicPartition(topic, number): each for number, each in enumerate(replicas)}


def after(now: Plan, plan: Plan) -> Plan:
    return {**now, **plan}


def counts(now: Plan) -> Counter[int]:
    return Counter(broker for replicas in now.values() for broker in replicas)


def leaders(now: Plan) -> Counter[int]:
    return Counter(replicas[0] for replicas in now.values())


def spread(found: Counter[int], brokers: range) -> int:
    numbers = [found[broker] for broker in brokers]
    return max(numbers) - min(numbers)


@st.composite
def clusters(draw: st.DrawFn) -> Plan:
    factor = draw(st.integers(1, 4))
    replicas = st.permutations(BROKERS).map(lambda order: list(order[:factor]))
    topics = draw(st.lists(st.lists(replicas, min_size=1, max_size=8), min_size=1, max_size=4))
    return {TopicPartition(f"t{number}", index): each for number, topic in enumerate(topics) for index, each in enumerate(topic)}


@given(clusters(), st.sampled_from(BROKERS))
def test_a_drained_broker_holds_nothing_and_only_its_partitions_move(now: Plan, broker: int) -> None:
    targets = [each for each in BROKERS if each != broker]
    plan, stuck = drained(now, {broker}, targets, NO_RACKS)
    assert stuck == [] and set(plan) == {partition for partition, replicas in now.items() if broker in replicas}
    for partition, replicas in plan.items():
        assert broker not in replicas and len(set(replicas)) == len(now[partition])
        assert len(set(replicas) - set(now[partition])) == 1
    assert drained(after(now, plan), {broker}, targets, NO_RACKS) == ({}, [])


def test_a_partition_without_a_free_broker_is_named_and_stays() -> None:
    now = placed([1, 2, 3], [1, 2])
    assert drained(now, {1}, [2, 3], NO_RACKS) == ({TopicPartition("t", 1): [3, 2]}, [TopicPartition("t", 0)])


def test_a_drain_keeps_replicas_in_different_racks() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "b", 5: "c", 6: "a"}
    plan, _ = drained(placed([1, 2, 3], [2, 1, 3]), {1}, [2, 3, 4, 5, 6], racks)
    assert all(sorted(racks[broker] or "" for broker in replicas) == ["a", "b", "c"] for replicas in plan.values())


def test_a_drain_spreads_leaders() -> None:
    plan, _ = drained(placed(*[[1, 2, 3]] * 6), {1}, [2, 3, 4], NO_RACKS)
    assert leaders(plan) == {2: 2, 3: 2, 4: 2}


@given(clusters(), st.sampled_from(BROKERS))
def test_a_broker_hands_over_what_another_replica_can_lead_and_no_replica_moves(now: Plan, broker: int) -> None:
    plan = handed_over(now, broker, BROKERS)
    assert set(plan) == {partition for partition, replicas in now.items() if replicas[0] == broker and len(replicas) > 1}
    assert all(sorted(replicas) == sorted(now[partition]) and replicas[0] != broker for partition, replicas in plan.items())


def test_handed_over_leaders_are_spread_over_live_brokers() -> None:
    now = placed(*[[1, 2, 3]] * 6, [2, 3], [1, 9], [1])
    plan = handed_over(now, 1, [1, 2, 3])
    assert leaders(after(now, plan)) == {2: 4, 3: 3, 1: 2}, "9 does not run, and the last partition has no other replica"
    assert handed_over(placed([9, 1, 2]), 1, [1, 2]) == placed([2, 1, 9])


@given(clusters())
def test_replicas_and_leaders_are_even_after_rebalancing(now: Plan) -> None:
    new = after(now, rebalanced(now, BROKERS, NO_RACKS))
    assert all(len(set(replicas)) == len(now[partition]) for partition, replicas in new.items())
    assert spread(counts(new), BROKERS) <= 1
    assert rebalanced(new, BROKERS, NO_RACKS) == {}
    moved = sum(len(set(new[partition]) - set(now[partition])) for partition in now)
    mean = sum(counts(now).values()) / len(BROKERS)
    assert moved <= sum(max(0, counts(now)[broker] - int(mean)) for broker in BROKERS)  # none moves that need not


@given(clusters())
def test_leaders_alone_are_spread_without_moving_a_replica(now: Plan) -> None:
    new = after(now, rebalanced(now, BROKERS, NO_RACKS, leaders_only=True))
    assert all(set(replicas) == set(now[partition]) for partition, replicas in new.items())
    assert max(leaders(new).values()) <= max(leaders(now).values())


def test_leadership_moves_along_a_chain() -> None:
    now = placed([1, 2], [1, 2], [2, 3], [2, 3])
    assert leaders(after(now, rebalanced(now, range(1, 4), NO_RACKS, leaders_only=True))) == {1: 1, 2: 2, 3: 1}
    now = placed([1, 2], [1, 2], [1, 2], [2, 3])
    assert leaders(after(now, rebalanced(now, range(1, 4), NO_RACKS, leaders_only=True))) in ({1: 2, 2: 1, 3: 1}, {1: 1, 2: 2, 3: 1})


@given(clusters(), st.dictionaries(st.sampled_from(BROKERS), st.sampled_from("abc")))
def test_no_partition_has_more_replicas_in_one_rack_than_before(now: Plan, racks: dict[int, str]) -> None:
    new = after(now, rebalanced(now, BROKERS, racks))
    for partition, replicas in new.items():
        assert pairs(replicas, racks) <= pairs(now[partition], racks)


def pairs(replicas: list[int], racks: dict[int, str]) -> int:
    """How many pairs of replicas share a rack."""
    inside = Counter(racks[broker] for broker in replicas if broker in racks)
    return sum(count * (count - 1) // 2 for count in inside.values())


def test_replicas_on_dead_brokers_stay() -> None:
    now = placed([9, 1], [9, 1], [1, 2], [1, 2])
    new = after(now, rebalanced(now, range(1, 4), NO_RACKS))
    assert all((9 in now[partition]) == (9 in replicas) for partition, replicas in new.items())
    assert spread(counts(new), range(1, 4)) <= 1


def test_a_new_broker_gets_its_share_of_thousands_of_partitions() -> None:
    now = placed(*([1 + number % 3, 1 + (number + 1) % 3] for number in range(3_000)))
    new = after(now, rebalanced(now, range(1, 5), NO_RACKS))
    assert spread(counts(new), range(1, 5)) <= 1 and spread(leaders(new), range(1, 5)) <= 1


def test_bytes_are_even_where_replicas_are() -> None:
    now = placed([1], [1], [2], [2])
    sizes = dict(zip(now, (9 << 30, 9 << 30, 1 << 30, 1 << 30), strict=True))
    assert rebalanced(now, range(1, 3), NO_RACKS) == {}
    new = after(now, rebalanced(now, range(1, 3), NO_RACKS, sizes=sizes))
    assert bytes_on(new, sizes) == {1: 10 << 30, 2: 10 << 30} and counts(new) == {1: 2, 2: 2}


def test_a_broker_with_one_replica_more_gives_it_to_one_with_fewer_bytes() -> None:
    now = placed([1], [1], [2])
    sizes = dict.fromkeys(now, 1 << 30) | {TopicPartition("t", 0): 4 << 30}
    new = after(now, rebalanced(now, range(1, 3), NO_RACKS, sizes=sizes))
    assert bytes_on(new, sizes) == {1: 4 << 30, 2: 2 << 30}


def test_small_differences_and_racks_are_left_alone() -> None:
    now = placed([1], [2])
    assert rebalanced(now, range(1, 3), NO_RACKS, sizes={TopicPartition("t", 0): BYTES_MIN}) == {}
    now = placed([1, 3], [1, 3], [2, 4], [2, 4])
    racks = {1: "a", 2: "b", 3: "b", 4: "a"}
    sizes = dict(zip(now, (9 << 30, 9 << 30, 1 << 30, 1 << 30), strict=True))
    new = after(now, rebalanced(now, range(1, 5), racks, sizes=sizes))
    assert all(racks[one] != racks[other] for one, other in new.values())


@given(clusters(), st.randoms(use_true_random=False))
def test_with_sizes_the_replicas_stay_even_and_a_second_plan_is_empty(now: Plan, random: Random) -> None:
    sizes = {partition: random.randrange(1 << 30) for partition in now}
    new = after(now, rebalanced(now, BROKERS, NO_RACKS, sizes=sizes))
    assert all(len(set(replicas)) == len(now[partition]) for partition, replicas in new.items())
    assert spread(counts(new), BROKERS) <= 1
    assert rebalanced(new, BROKERS, NO_RACKS, sizes=sizes) == {}
    counted_only = after(now, rebalanced(now, BROKERS, NO_RACKS))
    tolerance = max(BYTES_TOLERANCE * sum(bytes_on(new, sizes).values()) / len(BROKERS), BYTES_MIN)
    assert spread(bytes_on(new, sizes), BROKERS) <= max(spread(bytes_on(counted_only, sizes), BROKERS), tolerance)
