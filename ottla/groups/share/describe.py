"""What does ShareGroupDescribe show of a share group: its epochs, its members, what each has?"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.errors import ErrorCode
from ottla.groups.draft import answered
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareFacts, ShareGroup
from ottla.machine.contract import Decision, Reply
from ottla.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions


def describe_share_groups(shard: GroupShard, group_ids: Iterable[str], reply: Reply) -> Decision:
    """Answers a list of `DescribedGroup`."""
    wanted = list(group_ids)

    def refusal(code: ErrorCode) -> list[DescribedGroup]:
        return [DescribedGroup(group_id=group_id, error_code=code) for group_id in wanted]

    return answered(reply, [_describe(shard, group_id) for group_id in wanted], refusal)


def _describe(shard: GroupShard, group_id: str) -> DescribedGroup:
    group = shard.groups.get(group_id)
    if type(group) is not ShareGroup:
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=shard.settings.share_assignors[0],
        members=[_member(shard, group, member_id, facts) for member_id, facts in group.facts.items()],
    )


def _member(shard: GroupShard, group: ShareGroup, member_id: str, facts: ShareFacts) -> Member:
    position = group.position(member_id)
    topics = []
    for topic_id, partitions in position.assigned.items():
        name = shard.topics.topic_name(topic_id)
        if name is not None:  # a topic that is gone has no name to show
            topics.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(partitions)))
    return Member(
        member_id=member_id,
        rack_id=facts.rack_id,
        member_epoch=position.epoch,
        client_id=facts.client_id,
        client_host=facts.client_host,
        subscribed_topic_names=list(facts.topics),
        assignment=Assignment(topic_partitions=topics),
    )
