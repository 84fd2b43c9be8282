"""LeaveGroup: each named member has its own result, and all removals together begin one rebalance."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.groups.commands import MemberName
from ottla.groups.states import EMPTY, PREPARING_REBALANCE, STABLE
from tests.groups.classic.coordinator import BOTH, Coordinator


def test_a_group_has_a_name() -> None:
    assert Coordinator().leave(MemberName("a"), group_id="").error is ErrorCode.INVALID_GROUP_ID


def test_of_an_unknown_group_every_member_is_unknown() -> None:
    answer = Coordinator().leave(MemberName("a"), MemberName("", "i"))
    assert answer.error is ErrorCode.NONE and {one.error for one in answer.members} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_the_last_member_leaves_an_empty_group_that_the_log_knows() -> None:
    coordinator = Coordinator()
    [member_id] = coordinator.stable("a")
    assert coordinator.leave(MemberName(member_id)).members[0].error is ErrorCode.NONE
    stored = coordinator.group_records()[-1]
    assert (coordinator.group.state, stored.members, stored.generation, stored.protocol) == (EMPTY, [], 2, None)
    assert not coordinator.timers, "nothing waits for the group any more"


def test_several_members_leave_in_one_round() -> None:
    coordinator = Coordinator()
    first, second, third = coordinator.stable("a", "b", "c")
    answer = coordinator.leave(MemberName(first), MemberName("unknown"), MemberName(third))
    assert [one.error for one in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert (coordinator.group.state, coordinator.group.leader_id) == (PREPARING_REBALANCE, second)
    coordinator.join("b", second)
    assert coordinator.joined("b").generation == coordinator.group.generation


def test_a_member_that_is_unknown_begins_no_round() -> None:
    coordinator = Coordinator()
    coordinator.stable("a")
    coordinator.leave(MemberName("unknown"))
    assert coordinator.group.state is STABLE


@pytest.mark.parametrize(
    ("member_id", "instance_id", "code"),
    [
        ("", "i", ErrorCode.NONE),
        ("own", "i", ErrorCode.NONE),
        ("other", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("own", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_static_member_is_removed_by_its_instance(member_id: str, instance_id: str | None, code: ErrorCode) -> None:
    coordinator = Coordinator()
    own = coordinator.add("a", instance_id="i")
    coordinator.sync_all([own])
    [outcome] = coordinator.leave(MemberName(own if member_id == "own" else member_id, instance_id)).members
    assert (outcome.error, outcome.instance_id) == (code, instance_id)
    assert bool(coordinator.group.members) is bool(code)


def test_an_id_that_was_given_out_is_given_back() -> None:
    coordinator = Coordinator()
    coordinator.join("a", needs_member_id=True)
    member_id = coordinator.joined("a").member_id
    assert coordinator.leave(MemberName(member_id)).members[0].error is ErrorCode.NONE
    assert not coordinator.shard.groups and not coordinator.timers


def test_requests_that_a_leaving_member_has_open_are_answered() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable("a", "b")
    coordinator.join("waits", second, protocols=BOTH)
    coordinator.leave(MemberName(second))
    assert coordinator.codes() == [("waits", ErrorCode.UNKNOWN_MEMBER_ID)]
    coordinator.join("a", first)
    assert coordinator.joined("a").leader_id == first


def test_the_round_that_waits_for_a_member_ends_when_it_leaves() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable("a", "b")
    coordinator.join("a", first, protocols=BOTH)
    coordinator.leave(MemberName(second))
    assert coordinator.joined("a").generation == 3
