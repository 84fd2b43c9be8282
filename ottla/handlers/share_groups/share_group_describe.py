"""ShareGroupDescribe: the epochs and members of share groups, and each member's assignment (KIP-932).

Behaviour: a group that is unknown or of another type gets GROUP_ID_NOT_FOUND. If a group reads a topic that the principal may not describe,
the whole group gets TOPIC_AUTHORIZATION_FAILED. While the feature `share.version` is at level 0, each group gets UNSUPPORTED_VERSION.

Version notes: 0 was an early-access version, which current releases do not serve.
"""

from __future__ import annotations

from typing import Any

from ottla.groups.answers import DescribedEpochMember
from ottla.groups.describe import describe_share_groups
from ottla.handlers.advertised_levels import require_share_groups
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.descriptions import GroupKind, describe_groups, shown_topics
from ottla.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


def handle(broker: Broker, request: RequestContext, body: ShareGroupDescribeRequest) -> Any:
    return describe_groups(broker, request, SHARE, body.group_ids, with_operations=body.include_authorized_operations)


def show_member(member: DescribedEpochMember) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(topic_partitions=shown_topics(TopicPartitions, member.assigned)),
    )


SHARE = GroupKind(
    response=ShareGroupDescribeResponse,
    group=DescribedGroup,
    ask=describe_share_groups,
    show_member=show_member,
    require_offered=lambda broker: require_share_groups(broker.config.ottla_advertise_level),
)
