"""ConsumerGroupDescribe: the epochs and members of groups of the new protocol, with the current and the target assignment of each member
(KIP-848).

Behaviour: a group that is unknown or of another type gets GROUP_ID_NOT_FOUND. If a group reads a topic that the principal may not describe,
the whole group gets TOPIC_AUTHORIZATION_FAILED, because an incomplete assignment would be misleading. If
`group.coordinator.rebalance.protocols` excludes the protocol, each group gets UNSUPPORTED_VERSION.

Version notes: 1 has the type of a member, classic or consumer.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import DescribedEpochMember
from ottla.groups.describe import describe_consumer_groups
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import offers_consumer_groups
from ottla.handlers.groups.descriptions import GroupKind, describe_groups, shown_topics
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


def show_member(member: DescribedEpochMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=Assignment(topic_partitions=shown_topics(TopicPartitions, member.assigned)),
        target_assignment=Assignment(topic_partitions=shown_topics(TopicPartitions, member.target)),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def require_offered(broker: Broker) -> None:
    if not offers_consumer_groups(broker):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


CONSUMER = GroupKind(
    response=ConsumerGroupDescribeResponse,
    group=DescribedGroup,
    ask=describe_consumer_groups,
    show_member=show_member,
    require_offered=require_offered,
)
