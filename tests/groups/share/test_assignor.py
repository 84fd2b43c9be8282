"""The assignor `simple`: every partition is assigned to subscribers, evenly, and partitions move only if necessary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.loop.turns import run_steps
from ottla.groups.consumer.assignors import PartitionsByTopic
from ottla.groups.share import assignor
from ottla.groups.share.assignor import ShareMember

T, U = b"t" * 16, b"u" * 16
TOPICS = [bytes([letter]) * 16 for letter in b"abcd"]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 6), max_size=4)
SUBSCRIPTIONS = st.dictionaries(st.integers(0, 9), st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=8)


def members(subscriptions: dict[int, frozenset[bytes]], targets: dict[str, PartitionsByTopic] | None = None) -> list[ShareMember]:
    before = targets or {}
    return [ShareMember(f"m{number}", topics, before.get(f"m{number}", {})) for number, topics in subscriptions.items()]


def assign_simple(members: Sequence[ShareMember], partitions: Mapping[bytes, Sequence[int]]) -> dict[str, PartitionsByTopic]:
    """Runs all steps of the assignor. Returns each member's assignment."""
    return run_steps(assignor.assign_simple(members, partitions))


def check(subscriptions: dict[int, frozenset[bytes]], partitions: dict[bytes, range], result: dict[str, PartitionsByTopic]) -> None:
    pools: dict[tuple[str, ...], list[bytes]] = {}
    for topic, numbers in partitions.items():
        readers = tuple(sorted(f"m{number}" for number, topics in subscriptions.items() if topic in topics))
        having = {member_id for member_id, assignment in result.items() if topic in assignment}
        assert having <= set(readers)
        if readers and numbers:
            pools.setdefault(readers, []).append(topic)
    for readers, topics in pools.items():
        loads = [sum(len(result[member_id].get(topic, ())) for topic in topics) for member_id in readers]
        assert max(loads) - min(loads) <= 1 and min(loads) >= 1
        size = sum(len(partitions[topic]) for topic in topics)
        for topic in topics:
            for partition in partitions[topic]:
                assert sum(partition in result[member_id].get(topic, ()) for member_id in readers) == -(-len(readers) // size)


@given(COUNTS, SUBSCRIPTIONS, SUBSCRIPTIONS)
def test_every_partition_is_read_evenly_and_nothing_moves_without_need(
    counts: dict[bytes, int], first: dict[int, frozenset[bytes]], second: dict[int, frozenset[bytes]]
) -> None:
    partitions = {topic: range(count) for topic, count in counts.items()}
    result = assign_simple(members(first), partitions)
    check(first, partitions, result)
    assert assign_simple(members(first, result), partitions) == result, "what is even stays"
    later = assign_simple(members(second, result), partitions)
    check(second, partitions, later)
    assert assign_simple(members(second, result)[::-1], partitions) == later, "the order of members says nothing"


def test_more_partitions_than_members_are_dealt_out() -> None:
    wanted = {1: frozenset({T}), 2: frozenset({T})}
    assert assign_simple(members(wanted), {T: range(5)}) == {"m1": {T: (0, 2, 4)}, "m2": {T: (1, 3)}}


def test_fewer_partitions_than_members_are_shared() -> None:
    wanted = {number: frozenset({T}) for number in range(3)}
    result = assign_simple(members(wanted), {T: range(1)})
    assert result == {"m0": {T: (0,)}, "m1": {T: (0,)}, "m2": {T: (0,)}}


def test_a_new_member_takes_no_more_than_its_part() -> None:
    before = assign_simple(members({1: frozenset({T}), 2: frozenset({T})}), {T: range(6)})
    after = assign_simple(members({number: frozenset({T}) for number in (1, 2, 3)}, before), {T: range(6)})
    assert all(len(after[name][T]) == 2 for name in after)
    assert set(after["m1"][T]) < set(before["m1"][T]) and set(after["m2"][T]) < set(before["m2"][T])


def test_a_member_alone_in_its_topics_gets_them_alone() -> None:
    result = assign_simple(members({1: frozenset({T}), 2: frozenset({T, U})}), {T: range(2), U: range(2)})
    assert result["m1"].keys() == {T} and result["m2"][U] == (0, 1)


def test_nothing_to_read_is_nothing() -> None:
    assert assign_simple(members({1: frozenset({T})}), {T: range(0)}) == {"m1": {}}
    assert assign_simple([], {T: range(3)}) == {}


class Looked(dict[bytes, tuple[int, ...]]):
    """A member's target that counts how often it is read."""

    count = 0

    def get(self, *args: Any) -> Any:
        Looked.count += 1
        return super().get(*args)

    def __iter__(self) -> Iterator[bytes]:
        for topic in super().__iter__():
            Looked.count += 1
            yield topic


def test_the_work_grows_with_what_members_read_and_with_nothing_else() -> None:
    """Formerly, if the topics had different readers, all targets were read for each topic: 18 s for 200 members with 1,000 of 2,000
    topics."""
    topics = [number.to_bytes(16) for number in range(64)]
    subscriptions = {
        member: frozenset(topics[bit] for bit in range(64) if (member * 2654435761 + bit * 40503) >> 7 & 1) for member in range(1, 30)
    }
    partitions = {topic: range(1) for topic in topics}
    before = assign_simple(members(subscriptions), partitions)
    Looked.count = 0
    again = assign_simple(members(subscriptions, {name: Looked(target) for name, target in before.items()}), partitions)
    assert again == before
    assert Looked.count <= sum(map(len, subscriptions.values()))
