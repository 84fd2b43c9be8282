"""Descriptions of modern groups: the fields of existing groups, and the errors for other groups."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.groups.answers import AssignedTopic, DescribedEpochGroup, DescribedEpochMember
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.describe import assigned_topics, describe_epoch_groups
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareFacts, ShareGroup, SharePosition
from tests.groups.classic.coordinator import Coordinator

T, GONE = b"t".ljust(16, b"\0"), b"gone".ljust(16, b"\0")


def described(shard: GroupShard, *group_ids: str, refused: ErrorCode | None = None) -> list[DescribedEpochGroup]:
    def member(shard: GroupShard, group: ShareGroup, member_id: str) -> DescribedEpochMember:
        return DescribedEpochMember(
            member_id=member_id, epoch=group.position(member_id).epoch, client_id="", client_host="", rack_id=None, topics=(), assigned=()
        )

    found: list[Any] = []
    decision = describe_epoch_groups(
        shard, iter(group_ids), ShareGroup, lambda group: f"assignor of {group.group_id}", member, found.append
    )
    [answer] = decision.effects if refused is None else decision.refused(refused)
    answer.reply(answer.response)  # type: ignore[union-attr]
    [groups] = found
    return list(groups)


def test_each_group_is_shown_in_the_order_of_the_question() -> None:
    shard = Coordinator().shard
    for name in ("g", "h"):
        group = shard.groups[name] = ShareGroup(name)
        group.set_epoch(5, 0)
        group.set_target_epoch(4, 0)
    shard.groups["g"].set_member("a", ShareFacts())  # type: ignore[union-attr]
    shard.groups["g"].set_position("a", SharePosition(epoch=3))  # type: ignore[union-attr]
    second, first = described(shard, "h", "g")
    assert (first.group_id, first.state, first.epoch, first.assignment_epoch, first.assignor) == ("g", "Stable", 5, 4, "assignor of g")
    assert [(member.member_id, member.epoch) for member in first.members] == [("a", 3)]
    assert (second.group_id, second.state, second.members) == ("h", "Empty", [])


def test_unknown_groups_and_those_of_another_kind() -> None:
    shard = Coordinator().shard
    shard.groups["classic"] = ClassicGroup("classic")
    found = described(shard, "unknown", "classic")
    assert [(one.group_id, one.error, one.message) for one in found] == [
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND, "Group unknown not found."),
        ("classic", ErrorCode.GROUP_ID_NOT_FOUND, "Group classic is not a share group."),
    ]


def test_a_coordinator_that_has_moved_says_so_for_each_group() -> None:
    found = described(Coordinator().shard, "g", "h", refused=ErrorCode.NOT_COORDINATOR)
    assert [(one.group_id, one.error) for one in found] == [("g", ErrorCode.NOT_COORDINATOR), ("h", ErrorCode.NOT_COORDINATOR)]


def test_topics_that_are_gone_are_left_out() -> None:
    assert assigned_topics(Coordinator().shard, {GONE: (0,), T: (1, 2)}) == [AssignedTopic(T, "t", (1, 2))]
