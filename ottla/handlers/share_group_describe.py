"""ShareGroupDescribe: the epochs and members of share groups, and what each member has (KIP-932).

Behaviour: a group that is unknown or of another kind is GROUP_ID_NOT_FOUND. A group that reads a topic which the principal may not
describe is TOPIC_AUTHORIZATION_FAILED as a whole. UNSUPPORTED_VERSION while the feature `share.version` is at level 0.

Version notes: 0 was an early access version that no release serves any more.

Not done: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.groups.answers import AssignedTopic, DescribedEpochGroup, DescribedEpochMember
from ottla.requests.context import Broker, RequestContext
from ottla.requests.group_descriptions import Kind, describe_groups
from ottla.requests.levels import require_share_groups
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
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=_assignment(member.assigned),
    )


def _assignment(topics: Sequence[AssignedTopic]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=list(topic.partitions)) for topic in topics
        ]
    )


SHARE = Kind(
    response=ShareGroupDescribeResponse,
    ask=lambda machine, group_id, reply: machine.describe_share_groups([group_id], reply),
    show=show,
    require_offered=lambda broker: require_share_groups(broker.config.ottla_advertise_level),
)
