"""ConsumerGroupDescribe: the epochs and members of groups of the new protocol, what each member has and is meant to have (KIP-848).

Behaviour: a group that is unknown or of the classic protocol is GROUP_ID_NOT_FOUND. A group that reads a topic which the principal may not
describe is TOPIC_AUTHORIZATION_FAILED as a whole, since a part of its members' assignments would say something wrong. Where
`group.coordinator.rebalance.protocols` leaves the protocol out, UNSUPPORTED_VERSION.

Version notes: 1 member type (classic or consumer).

Not done: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import AssignedTopic, DescribedEpochGroup, DescribedEpochMember
from ottla.requests.context import Broker, RequestContext
from ottla.requests.coordination import offers_consumer_groups
from ottla.requests.group_descriptions import Kind, describe_groups
from ottla.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def handle(broker: Broker, request: RequestContext, body: ConsumerGroupDescribeRequest) -> Any:
    return describe_groups(broker, request, CONSUMER, body.group_ids, with_operations=body.include_authorized_operations)


def show(group: DescribedEpochGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        error_code=group.error,
        error_message=group.message,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=list(map(_member, group.members)),
    )


def _member(member: DescribedEpochMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(member.target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(topics: Sequence[AssignedTopic]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=list(topic.partitions)) for topic in topics
        ]
    )


def require_offered(broker: Broker) -> None:
    if not offers_consumer_groups(broker):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


CONSUMER = Kind(
    response=ConsumerGroupDescribeResponse,
    ask=lambda machine, group_id, reply: machine.describe_consumer_groups([group_id], reply),
    show=show,
    require_offered=require_offered,
)
