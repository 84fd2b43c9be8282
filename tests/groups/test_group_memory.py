"""The memory of all groups of a broker is bounded, also after their members have left (I46)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX
from ottla.base.uuids import ZERO_UUID
from ottla.groups.admin import delete_group
from ottla.groups.commands import Caller, CommitOffsets, ConsumerHeartbeat, OffsetToCommit
from ottla.groups.consumer.heartbeat import heartbeat
from ottla.groups.offsets.commit import commit_offsets
from ottla.groups.settings import MEMBER_BYTES
from ottla.machine.memory import COUNTED_AT_ONCE, CoordinatorMemory
from tests.groups.classic.coordinator import Coordinator
from tests.instructions import instructions


def test_what_is_admitted_counts_until_it_is_counted_anew() -> None:
    memory = CoordinatorMemory(10_000)
    held = {"a": 0, "b": 0}
    first, second = (memory.share(lambda name=name: [("", held[name])]) for name in held)  # type: ignore[misc]
    first.admit(6_000)
    held["a"] = 6_000
    second.admit(4_000)
    held["b"] = 4_000
    with pytest.raises(ApiError) as refused:
        second.admit(1)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    held["b"] = 1_000
    second.admit(3_000)
    assert memory.total_bytes() == 10_000


def test_what_a_request_admits_costs_the_same_with_many_shards() -> None:
    costs = []
    for count in (1, 50):
        memory = CoordinatorMemory()
        shares = [memory.share(list) for _ in range(count)]
        costs.append(instructions(lambda: shares[0].admit(100, "alice")))  # noqa: B023
    assert costs[0] == costs[1]


def test_a_dropped_shard_no_longer_counts() -> None:
    memory = CoordinatorMemory(10_000)
    kept, dropped = memory.share(list), memory.share(list)
    dropped.admit(9_000)
    del dropped
    kept.admit(10_000)
    assert memory.total_bytes() == 10_000


def test_members_that_left_another_shard_make_room_in_the_end() -> None:
    memory = CoordinatorMemory(10_000)
    shares = [memory.share(list) for _ in range(5)]
    for share in shares[1:]:
        share.admit(2_500)
    admitted = 0
    for _ in shares:
        try:
            shares[0].admit(2_500)
            admitted += 1
        except ApiError:
            pass
    assert admitted


def test_thousands_of_groups_are_counted_a_thousand_at_a_time() -> None:
    memory = CoordinatorMemory(10_000)
    sizes = [1] * (2 * COUNTED_AT_ONCE + 1)
    asked: list[int] = []

    def of_groups() -> Iterator[tuple[str, int]]:
        for size in list(sizes):
            asked.append(size)
            yield "", size

    share = memory.share(of_groups)
    share.admit(10_000)
    for counted in (1, 2):
        with pytest.raises(ApiError):
            share.admit(1)
        assert len(asked) <= counted * COUNTED_AT_ONCE
    share.admit(1)
    assert memory.total_bytes() == len(sizes) + 1


def test_a_shard_that_is_gone_holds_nothing() -> None:
    memory = CoordinatorMemory(10_000)
    share = memory.share(lambda: [("", 10_000)])
    share.admit(10_000)
    del share
    another = memory.share(list)
    another.admit(9_000)
    assert memory.total_bytes() == 9_000


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.shard.memory = CoordinatorMemory(100_000).share(coordinator.shard._sizes)
    return coordinator


def join(coordinator: Coordinator, number: int, size: int, **fields: Any) -> ErrorCode:
    coordinator.join("member", group_id=f"group-{number}", protocols=(("range", bytes(size)),), **fields)
    return ErrorCode(coordinator.answered()[-1][1].error)


def test_i46_groups_of_one_member_each_are_bounded(coordinator: Coordinator) -> None:
    """Formerly only the metadata of each group was limited, and a client can create any number of groups."""
    codes = [join(coordinator, number, 20_000) for number in range(8)]
    assert codes == [ErrorCode.NONE] * 4 + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4
    assert len(coordinator.shard.groups) == 4
    coordinator.advance(400_000)
    assert not any(group.members for group in coordinator.shard.groups.values()), "their sessions are over"
    assert join(coordinator, 9, 20_000) is ErrorCode.NONE


def test_i46_ids_that_are_never_used_are_bounded(coordinator: Coordinator) -> None:
    codes = [join(coordinator, number, 0, needs_member_id=True) for number in range(100)]
    assert codes[0] is ErrorCode.MEMBER_ID_REQUIRED and codes[-1] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(coordinator.shard.groups) == 100_000 // MEMBER_BYTES


def test_i46_members_of_the_new_protocols_are_bounded(coordinator: Coordinator) -> None:
    """The members subscribe to long lists of topics, which need not exist."""
    topics = [f"a-topic-of-some-length-{number}" for number in range(250)]
    codes = [beat(coordinator, f"group-{number}", topics=topics) for number in range(8)]
    assert codes[0] is ErrorCode.NONE and codes[-1] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert beat(coordinator, "group-0", topics=None, member_epoch=2) is ErrorCode.NONE, "a member that is there stays"


def beat(coordinator: Coordinator, group_id: str, **fields: Any) -> ErrorCode:
    known = {"member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 60_000, "topics": ["t"], "owned": {}}
    answers: list[Any] = []
    command = ConsumerHeartbeat(**{"group_id": group_id, "caller": Caller("client", "/host"), **known, **fields})
    coordinator.take(heartbeat(coordinator.shard, command, answers.append, coordinator.now_ms))
    return ErrorCode(answers[-1].error)


MALLORY, ALICE = (Caller("client", "/host", owner=f"User:{name}") for name in ("mallory", "alice"))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_i46_the_groups_of_one_user_do_not_take_all(coordinator: Coordinator, protocol: str) -> None:
    topics = [f"a-topic-of-some-length-{number}" for number in range(20)]

    def codes(caller: Caller, names: range) -> list[ErrorCode]:
        if protocol == "classic":
            return [join(coordinator, number, 2_000, caller=caller) for number in names]
        return [beat(coordinator, f"group-{number}", topics=topics, caller=caller) for number in names]

    of_mallory = codes(MALLORY, range(100)).count(ErrorCode.NONE)
    assert 0 < of_mallory < 100 and coordinator.shard.memory.bytes <= 75_000, "three quarters"
    assert codes(MALLORY, range(100, 150)).count(ErrorCode.NONE) == 0, "also when all is counted anew"
    assert codes(ALICE, range(200, 201)) == [ErrorCode.NONE]


def test_i46_the_offsets_of_one_user_do_not_take_all(coordinator: Coordinator) -> None:
    shard = coordinator.shard
    shard.offset_memory = CoordinatorMemory(100_000).share(shard._offset_sizes)

    def committed(owner: str, names: range) -> int:
        return [commit(coordinator, f"group-{number}", owner) for number in names].count(ErrorCode.NONE)

    of_mallory = committed("User:mallory", range(1_000))
    assert 0 < of_mallory < 1_000 and shard.offset_memory.bytes <= 75_000
    assert committed("User:mallory", range(1_000, 2_000)) == 0, "also when all is counted anew"
    assert committed("User:alice", range(3_000, 3_010)) == 10
    assert commit(coordinator, "group-0", "User:mallory") is ErrorCode.NONE, "an offset that is there may change"


def commit(coordinator: Coordinator, group_id: str, owner: str) -> ErrorCode:
    answers: list[Any] = []
    command = CommitOffsets(group_id, "", None, -1, [OffsetToCommit("t", ZERO_UUID, 0, 5, -1, "")], owner=owner)
    coordinator.take(commit_offsets(coordinator.shard, command, answers.append, coordinator.now_ms))
    return ErrorCode(answers[-1][0])


@pytest.mark.parametrize("field", ["member_id", "instance_id", "rack_id", "regex"])
def test_long_ids_are_refused(coordinator: Coordinator, field: str) -> None:
    assert beat(coordinator, "g", **{field: "x" * (ID_CHARACTERS_MAX + 1)}) is ErrorCode.INVALID_REQUEST
    assert not coordinator.shard.groups


def test_long_instance_ids_are_refused(coordinator: Coordinator) -> None:
    assert join(coordinator, 1, 0, instance_id="x" * (ID_CHARACTERS_MAX + 1)) is ErrorCode.INVALID_REQUEST


def test_nothing_is_left_of_a_group_that_was_deleted(coordinator: Coordinator) -> None:
    """Formerly 0.2 kB remained for each group that had ever existed."""
    assert beat(coordinator, "g") is ErrorCode.NONE
    assert beat(coordinator, "g", member_epoch=-1) is ErrorCode.NONE
    codes: list[ErrorCode] = []
    coordinator.take(delete_group(coordinator.shard, "g", codes.append))
    assert codes == [ErrorCode.NONE]
    coordinator.advance(120_000)
    shard = coordinator.shard
    assert not shard.groups and not shard.refreshes and not shard.sessions and not coordinator.timers
