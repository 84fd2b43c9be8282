"""What does ConsumerGroupDescribe show of a consumer group: its epochs, its members, what each has and is meant to have?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.errors import ErrorCode
from ottla.base.uuids import Uuid
from ottla.groups.consumer.group import ConsumerGroup, MemberFacts, Position
from ottla.groups.draft import answered
from ottla.groups.shard import GroupShard
from ottla.machine.contract import Decision, Reply
from ottla.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe_consumer_groups(shard: GroupShard, group_ids: Iterable[str], reply: Reply) -> Decision:
    """Answers a list of `DescribedGroup`."""
    wanted = list(group_ids)

    def refusal(code: ErrorCode) -> list[DescribedGroup]:
        return [DescribedGroup(group_id=group_id, error_code=code) for group_id in wanted]

    return answered(reply, [_describe(shard, group_id) for group_id in wanted], refusal)


def _describe(shard: GroupShard, group_id: str) -> DescribedGroup:
    group = shard.groups.get(group_id)
    if type(group) is not ConsumerGroup:
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(shard.settings.consumer_assignors),
        members=[_member(shard, group, member_id, facts) for member_id, facts in group.facts.items()],
    )


def _member(shard: GroupShard, group: ConsumerGroup, member_id: str, facts: MemberFacts) -> Member:
    position = group.position(member_id)
    return Member(
        member_id=member_id,
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        member_epoch=position.epoch,
        client_id=facts.client_id,
        client_host=facts.client_host,
        subscribed_topic_names=list(facts.topics),
        subscribed_topic_regex=facts.regex or "",
        assignment=_assignment(shard, _held(position)),
        target_assignment=_assignment(shard, group.target.get(member_id, {})),
        member_type=CONSUMER_MEMBER if facts.classic is None else CLASSIC_MEMBER,
    )


def _held(position: Position) -> dict[Uuid, tuple[int, ...]]:
    """What the member may be reading: also what it was told to give up, until it says that it has."""
    held = dict(position.assigned)
    for topic_id, partitions in position.revoking.items():
        held[topic_id] = tuple(sorted({*held.get(topic_id, ()), *partitions}))
    return held


def _assignment(shard: GroupShard, assigned: Mapping[Uuid, tuple[int, ...]]) -> Assignment:
    """Topics that are gone have no name to show and are left out."""
    topics = []
    for topic_id, partitions in assigned.items():
        name = shard.topics.topic_name(topic_id)
        if name is not None:
            topics.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(partitions)))
    return Assignment(topic_partitions=topics)
