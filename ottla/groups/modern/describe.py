"""Describes consumer and share groups: epochs, members, and each member's current and target assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.uuids import Uuid
from ottla.groups.answers import AssignedTopic, DescribedEpochGroup, DescribedEpochMember
from ottla.groups.modern.group import EpochGroup
from ottla.groups.shard import GroupShard
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import answered

DescribeMember = Callable[[GroupShard, Any, str], DescribedEpochMember]


def describe_epoch_groups(
    shard: GroupShard,
    group_ids: Iterable[str],
    kind: type[EpochGroup[Any, Any]],
    assignor_of: Callable[[Any], str],
    describe_member: DescribeMember,
    reply: Reply,
) -> Decision:
    """Answers a list of `DescribedEpochGroup`."""

    def describe(group_id: str) -> DescribedEpochGroup:
        group = shard.groups.get(group_id)
        if not isinstance(group, kind):
            message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a {kind.word} group."
            return DescribedEpochGroup(group_id=group_id, error=ErrorCode.GROUP_ID_NOT_FOUND, message=message)
        return DescribedEpochGroup(
            group_id=group_id,
            state=group.state.value,
            epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor=assignor_of(group),
            members=[describe_member(shard, group, member_id) for member_id in group.facts],
        )

    wanted = list(group_ids)
    return answered(reply, list(map(describe, wanted)), lambda code: [DescribedEpochGroup(group_id=name, error=code) for name in wanted])


def assigned_topics(shard: GroupShard, assigned: Mapping[Uuid, tuple[int, ...]]) -> list[AssignedTopic]:
    """Returns the assignment with topic names, without deleted topics."""
    named = ((topic_id, shard.topics.topic_name(topic_id), partitions) for topic_id, partitions in assigned.items())
    return [AssignedTopic(topic_id, name, partitions) for topic_id, name, partitions in named if name is not None]
