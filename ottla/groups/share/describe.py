"""Describes the members of a share group (ShareGroupDescribe)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.groups.answers import DescribedEpochMember
from ottla.groups.modern.describe import assigned_topics, describe_epoch_groups
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.machine.contract import Decision, Reply


def describe_share_groups(shard: GroupShard, group_ids: Iterable[str], reply: Reply) -> Decision:
    """Answers a list of `DescribedEpochGroup`."""
    assignor = shard.settings.share_assignors[0]
    return describe_epoch_groups(shard, group_ids, ShareGroup, lambda _group: assignor, _member, reply)


def _member(shard: GroupShard, group: ShareGroup, member_id: str) -> DescribedEpochMember:
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
