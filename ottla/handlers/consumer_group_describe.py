"""ConsumerGroupDescribe: the epochs and members of groups of the new protocol, what each member has and is meant to have (KIP-848).

Behaviour: a group that is unknown or of the classic protocol is GROUP_ID_NOT_FOUND. A group that reads a topic which the principal may not
describe is TOPIC_AUTHORIZATION_FAILED as a whole, since a part of its members' assignments would say something wrong. Where
`group.coordinator.rebalance.protocols` leaves the protocol out, UNSUPPORTED_VERSION.

Version notes: 1 member type (classic or consumer).

Not done: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.requests.coordination import offers_consumer_groups
from ottla.requests.group_descriptions import Kind, describe_groups
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)


def handle(broker: Broker, request: RequestContext, body: ConsumerGroupDescribeRequest) -> Any:
    return describe_groups(broker, request, CONSUMER, body.group_ids, with_operations=body.include_authorized_operations)


def topics_of(member: Member) -> Iterator[str]:
    yield from member.subscribed_topic_names
    for assignment in (member.assignment, member.target_assignment):
        yield from (topic.topic_name for topic in assignment.topic_partitions)


def require_offered(broker: Broker) -> None:
    if not offers_consumer_groups(broker):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


CONSUMER = Kind(
    response=ConsumerGroupDescribeResponse,
    group=DescribedGroup,
    ask=lambda machine, group_id, reply: machine.describe_consumer_groups([group_id], reply),
    topics_of=topics_of,
    require_offered=require_offered,
)
