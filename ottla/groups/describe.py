"""Describes modern groups: epochs, members, and each member's current assignment; except in share groups, also the target assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.uuids import Uuid
from ottla.groups.answers import AssignedTopic, DescribedEpochGroup, DescribedEpochMember, DescribedStreamsMember
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.modern.group import EpochGroup
from ottla.groups.modern.reconciling import ReconciledAssignment
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.groups.streams.assignor import STICKY
from ottla.groups.streams.description import Description
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.topology import Configured
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import answered

DescribeMember = Callable[[GroupShard, Any, str], DescribedEpochMember | DescribedStreamsMember]


def describe_consumer_groups(shard: GroupShard, group_ids: Iterable[str], reply: Reply) -> Decision:
    """Answers with a list of `DescribedEpochGroup`."""
    known = shard.settings.consumer_assignors
    return describe_epoch_groups(shard, group_ids, ConsumerGroup, lambda group: group.preferred_assignor(known), _consumer_member, reply)


def _consumer_member(shard: GroupShard, group: ConsumerGroup, member_id: str) -> DescribedEpochMember:
    facts, position = group.facts[member_id], group.position(member_id)
    return DescribedEpochMember(
        member_id=member_id,
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        epoch=position.epoch,
        client_id=facts.client_id,
        client_host=facts.client_host,
        topics=facts.topics,
        regex=facts.regex,
        assigned=assigned_topics(shard, _held(position)),
        target=assigned_topics(shard, group.target.get(member_id, {})),
        is_classic=facts.classic is not None,
    )


def _held(position: ReconciledAssignment) -> dict[Any, tuple[int, ...]]:
    """Returns the partitions that the member may be reading: its assigned partitions, and the partitions with unconfirmed revocation."""
    held = dict(position.assigned)
    for topic_id, partitions in position.revoking.items():
        held[topic_id] = tuple(sorted({*held.get(topic_id, ()), *partitions}))
    return held


def describe_share_groups(shard: GroupShard, group_ids: Iterable[str], reply: Reply) -> Decision:
    """Answers with a list of `DescribedEpochGroup`."""
    assignor = shard.settings.share_assignors[0]
    return describe_epoch_groups(shard, group_ids, ShareGroup, lambda _group: assignor, _share_member, reply)


def _share_member(shard: GroupShard, group: ShareGroup, member_id: str) -> DescribedEpochMember:
    facts, position = group.facts[member_id], group.position(member_id)
    return DescribedEpochMember(
        member_id=member_id,
        rack_id=facts.rack_id,
        epoch=position.epoch,
        client_id=facts.client_id,
        client_host=facts.client_host,
        topics=facts.topics,
        assigned=assigned_topics(shard, position.assigned),
    )


def describe_streams_groups(shard: GroupShard, group_ids: Iterable[str], reply: Reply) -> Decision:
    """Answers with a list of `DescribedEpochGroup`."""
    return describe_epoch_groups(shard, group_ids, StreamsGroup, lambda _group: STICKY, _streams_member, reply, _configured, _description)


def _streams_member(shard: GroupShard, group: StreamsGroup, member_id: str) -> DescribedStreamsMember:
    position, (offsets, end_offsets) = group.position(member_id), shard.streams_state(group.group_id).offsets.get(member_id, ({}, {}))
    return DescribedStreamsMember(
        member_id=member_id,
        epoch=position.epoch,
        facts=group.facts[member_id],
        assigned=_held(position),
        target=group.target.get(member_id, {}),
        offsets=offsets,
        end_offsets=end_offsets,
    )


def _configured(shard: GroupShard, group: StreamsGroup) -> Configured | None:
    """Returns the group's topology, with partition counts if a heartbeat has determined them on this broker."""
    if group.topology is None:
        return None
    known = shard.streams_state(group.group_id).configured
    return known if known is not None and known.topology == group.topology else Configured(group.topology)


def _description(shard: GroupShard, group: StreamsGroup) -> Description | None:
    return None if group.topology is None else shard.streams_state(group.group_id).described.current(group.topology.epoch)


def no_topology(_shard: GroupShard, _group: Any) -> None:
    return None


def describe_epoch_groups(
    shard: GroupShard,
    group_ids: Iterable[str],
    kind: type[EpochGroup[Any, Any]],
    assignor_of: Callable[[Any], str],
    describe_member: DescribeMember,
    reply: Reply,
    configured_of: Callable[[GroupShard, Any], Configured | None] = no_topology,
    description_of: Callable[[GroupShard, Any], Description | None] = no_topology,
) -> Decision:
    """Answers with a list of `DescribedEpochGroup`."""

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
            configured=configured_of(shard, group),
            description=description_of(shard, group),
        )

    wanted = list(group_ids)
    return answered(reply, list(map(describe, wanted)), lambda code: [DescribedEpochGroup(group_id=name, error=code) for name in wanted])


def assigned_topics(shard: GroupShard, assigned: Mapping[Uuid, tuple[int, ...]]) -> list[AssignedTopic]:
    """Returns the assignment with topic names, without deleted topics."""
    named = ((topic_id, shard.topics.topic_name(topic_id), partitions) for topic_id, partitions in assigned.items())
    return [AssignedTopic(topic_id, name, partitions) for topic_id, name, partitions in named if name is not None]
