"""Server-side assignors: known examples, and the invariants of every assignment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.loop.turns import run_steps
from ottla.groups.consumer.assignors import ASSIGNORS, MemberSpec, PartitionsByTopic

T1, T2, T3 = b"1" * 16, b"2" * 16, b"3" * 16
COUNTS = {T1: 3, T2: 2, T3: 2}
Targets = dict[str, PartitionsByTopic]


def assign_uniform(members: list[MemberSpec], counts: dict[bytes, int]) -> Targets:
    return run_steps(ASSIGNORS["uniform"](members, counts))


def assign_range(members: list[MemberSpec], counts: dict[bytes, int]) -> Targets:
    return run_steps(ASSIGNORS["range"](members, counts))


def spec(member_id: str, *topics: bytes, target: PartitionsByTopic | None = None, instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(member_id, instance_id, frozenset(topics), target or {})


def test_uniform_deals_in_turn() -> None:
    assert assign_uniform([spec("a", T1, T3), spec("b", T1, T3)], COUNTS) == {
        "a": {T1: (0, 2), T3: (1,)},
        "b": {T1: (1,), T3: (0,)},
    }


def test_uniform_leaves_what_it_need_not_move() -> None:
    """A third member gets one partition of the member with the most partitions, and no other partition moves."""
    before: Targets = {"a": {T1: (0, 2), T3: (1,)}, "b": {T1: (1,), T3: (0,)}}
    members = [spec(member_id, T1, T3, target=target) for member_id, target in before.items()] + [spec("c", T1, T3)]
    after = assign_uniform(members, COUNTS)
    assert sorted(sum(map(len, assignment.values())) for assignment in after.values()) == [1, 2, 2]
    moved = sum(len(set(partitions) - set(before[member].get(topic, ()))) for member in "ab" for topic, partitions in after[member].items())
    assert moved == 0


def test_more_members_than_partitions() -> None:
    after = assign_uniform([spec("a", T2), spec("b", T2), spec("c", T2)], COUNTS)
    assert after == {"a": {T2: (0,)}, "b": {T2: (1,)}, "c": {}}


def test_uniform_with_unequal_subscriptions_relieves_the_loaded() -> None:
    after = assign_uniform([spec("a", T1, T2, T3, target={T1: (0, 1, 2), T2: (0, 1), T3: (0, 1)}), spec("b", T2), spec("c", T3)], COUNTS)
    assert after == {"a": {T1: (0, 1, 2)}, "b": {T2: (0, 1)}, "c": {T3: (0, 1)}}


def test_range_gives_consecutive_runs_in_the_order_of_names() -> None:
    assert assign_range([spec("b", T1, T3), spec("a", T1, T3)], COUNTS) == {"a": {T1: (0, 1), T3: (0,)}, "b": {T1: (2,), T3: (1,)}}


def test_range_sorts_static_members_by_instance_so_that_a_restart_changes_nothing() -> None:
    first = assign_range([spec("x", T1, instance_id="i1"), spec("a", T1, instance_id="i2")], COUNTS)
    again = assign_range([spec("z", T1, instance_id="i1"), spec("a", T1, instance_id="i2")], COUNTS)
    assert first["x"] == again["z"] == {T1: (0, 1)}


def test_range_skips_members_that_do_not_subscribe() -> None:
    assert assign_range([spec("a", T1), spec("b", T2), spec("c", T1, T2)], COUNTS) == {
        "a": {T1: (0, 1)},
        "b": {T2: (0,)},
        "c": {T1: (2,), T2: (1,)},
    }


TOPICS = [bytes([number]) * 16 for number in range(1, 6)]


@st.composite
def groups(draw: st.DrawFn, *, is_equal: bool) -> tuple[list[MemberSpec], dict[bytes, int]]:
    counts = {topic: draw(st.integers(1, 12)) for topic in TOPICS[: draw(st.integers(1, 5))]}
    shared = frozenset(counts)
    members, free = [], {topic: list(range(count + 2)) for topic, count in counts.items()}
    for number in range(draw(st.integers(1, 7))):
        topics = shared if is_equal else frozenset(draw(st.sets(st.sampled_from(sorted(counts)))))
        target: PartitionsByTopic = {}
        for topic, partitions in free.items():
            mine = tuple(partitions.pop() for _ in range(min(len(partitions), draw(st.integers(0, 4)))))
            if mine:
                target[topic] = tuple(sorted(mine))
        members.append(MemberSpec(f"m{number}", None, topics, target))
    return members, counts


def check_ownership(members: list[MemberSpec], counts: dict[bytes, int], after: Targets) -> None:
    subscriptions = {member.member_id: member.topics for member in members}
    owned = [(topic, partition) for assignment in after.values() for topic, partitions in assignment.items() for partition in partitions]
    read = frozenset(topic for topics in subscriptions.values() for topic in topics)
    assert sorted(owned) == [(topic, partition) for topic in sorted(read) for partition in range(counts[topic])]
    assert all(topic in subscriptions[member_id] for member_id, assignment in after.items() for topic in assignment)
    assert all(partitions and list(partitions) == sorted(partitions) for a in after.values() for partitions in a.values())


@given(groups(is_equal=True))
def test_uniform_is_balanced_and_sticky(group: tuple[list[MemberSpec], dict[bytes, int]]) -> None:
    members, counts = group
    after = assign_uniform(members, counts)
    check_ownership(members, counts, after)
    sizes = {member_id: sum(map(len, assignment.values())) for member_id, assignment in after.items()}
    assert max(sizes.values()) - min(sizes.values()) <= 1
    quota = sum(counts.values()) // len(members)
    for member in members:
        valid = [(t, p) for t, partitions in member.target.items() for p in partitions if p < counts[t]]
        kept = sum(p in after[member.member_id].get(t, ()) for t, p in valid)
        assert kept >= min(len(valid), quota), "a partition moved that need not"


@given(groups(is_equal=True))
def test_uniform_of_its_own_result_moves_nothing(group: tuple[list[MemberSpec], dict[bytes, int]]) -> None:
    members, counts = group
    after = assign_uniform(members, counts)
    assert assign_uniform([member._replace(target=after[member.member_id]) for member in members], counts) == after


@given(groups(is_equal=False))
def test_uniform_with_unequal_subscriptions_cannot_be_improved_by_one_move(group: tuple[list[MemberSpec], dict[bytes, int]]) -> None:
    members, counts = group
    after = assign_uniform(members, counts)
    check_ownership(members, counts, after)
    sizes = {member_id: sum(map(len, assignment.values())) for member_id, assignment in after.items()}
    for giver, assignment in after.items():
        for topic in assignment:
            for taker in members:
                if topic in taker.topics:
                    assert sizes[giver] - sizes[taker.member_id] <= 1


@given(groups(is_equal=False))
def test_range_owns_each_partition_once(group: tuple[list[MemberSpec], dict[bytes, int]]) -> None:
    members, counts = group
    check_ownership(members, counts, assign_range(members, counts))


def test_without_members_nothing_is_assigned() -> None:
    assert all(run_steps(assign([], COUNTS)) == {} for assign in ASSIGNORS.values())
