"""The published examples of Kafka's assignors, and what every assignment must keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.core.assignors import Subscription, assign, assign_range, assign_round_robin, assign_sticky, withhold_moving

MEMBERS = {"C0": Subscription(("t0", "t1")), "C1": Subscription(("t0", "t1"))}
COUNTS = {"t0": 3, "t1": 3}


def _numbers(assignment: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {member: " ".join(f"{topic}p{number}" for topic, number in partitions) for member, partitions in assignment.items()}


def test_range_by_its_published_example() -> None:
    assert _numbers(assign_range(MEMBERS, COUNTS)) == {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"}


def test_round_robin_by_its_published_example() -> None:
    assert _numbers(assign_round_robin(MEMBERS, COUNTS)) == {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"}


def test_round_robin_passes_over_members_without_the_topic() -> None:
    members = {"C0": Subscription(("t0",)), "C1": Subscription(("t0", "t1")), "C2": Subscription(("t0", "t1", "t2"))}
    found = _numbers(assign_round_robin(members, {"t0": 1, "t1": 2, "t2": 3}))
    assert found == {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}


def test_sticky_moves_no_more_than_it_must() -> None:
    owned = tuple(TopicPartition("t", number) for number in range(4))
    members = {"a": Subscription(("t",), owned, 1), "b": Subscription(("t",), (), 1)}
    found = assign_sticky(members, {"t": 4})
    assert len(found["a"]) == len(found["b"]) == 2
    assert set(found["a"]) <= set(owned)


def test_moving_partitions_are_withheld_in_the_first_round() -> None:
    owned = tuple(TopicPartition("t", number) for number in range(2))
    members = {"a": Subscription(("t",), owned, 1), "b": Subscription(("t",), (), 1)}
    found = withhold_moving(assign_sticky(members, {"t": 2}), members)
    assert len(found["a"]) == 1
    assert found["b"] == []


def test_a_partition_claimed_twice_belongs_to_the_newer_generation() -> None:
    claimed = (TopicPartition("t", 0),)
    members = {"old": Subscription(("t",), claimed, 1), "new": Subscription(("t",), claimed, 2)}
    assert assign_sticky(members, {"t": 1})["new"] == list(claimed)


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(
    subscriptions=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.sets(st.sampled_from(["x", "y", "z"]), min_size=1).map(sorted), min_size=1, max_size=6
    ),
    counts=st.fixed_dictionaries({name: st.integers(0, 7) for name in "xyz"}),
)
def test_every_partition_has_exactly_one_reader(name: str, subscriptions: dict[str, list[str]], counts: dict[str, int]) -> None:
    members = {member: Subscription(tuple(topics)) for member, topics in subscriptions.items()}
    given_out = [partition for partitions in assign(name, members, counts).values() for partition in partitions]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    expected = [TopicPartition(topic, number) for topic in wanted for number in range(counts[topic])]
    assert sorted(given_out) == sorted(expected)
