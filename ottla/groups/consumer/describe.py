"""Describes the members of a consumer group (ConsumerGroupDescribe)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.uuids import Uuid
from ottla.groups.answers import DescribedEpochMember
from ottla.groups.consumer.group import ConsumerAssignment, ConsumerGroup
from ottla.groups.modern.describe import assigned_topics, describe_epoch_groups
from ottla.groups.shard import GroupShard
from ottla.machine.contract import Decision, Reply


def describe_consumer_groups(shard: GroupShard, group_ids: Iterable[str], reply: Reply) -> Decision:
    """Answers a list of `DescribedEpochGroup`."""
    assignors = shard.settings.consumer_assignors
    return describe_epoch_groups(shard, group_ids, ConsumerGroup, lambda group: group.preferred_assignor(assignors), _member, reply)


def _member(shard: GroupShard, group: ConsumerGroup, member_id: str) -> DescribedEpochMember:
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


def _held(position: ConsumerAssignment) -> dict[Uuid, tuple[int, ...]]:
    """Returns the partitions that the member may be reading: its assigned partitions, and the partitions with unconfirmed revocation."""
    held = dict(position.assigned)
    for topic_id, partitions in position.revoking.items():
        held[topic_id] = tuple(sorted({*held.get(topic_id, ()), *partitions}))
    return held
