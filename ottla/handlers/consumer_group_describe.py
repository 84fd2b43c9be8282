"""ConsumerGroupDescribe: the epochs and members of groups of the new protocol, what each member has and is meant to have (KIP-848).

API and versions: ConsumerGroupDescribe (key 69), 0-1.

Behaviour: a group that is unknown or of the classic protocol is GROUP_ID_NOT_FOUND. A group that reads a topic which the principal may not
describe is TOPIC_AUTHORIZATION_FAILED as a whole, since a part of its members' assignments would say something wrong. Where
`group.coordinator.rebalance.protocols` leaves the protocol out, UNSUPPORTED_VERSION.

Version notes: 1 member type (classic or consumer).

Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import AclOperation, Broker, Pending, RequestContext, ResourceType, require
from ottla.handlers.coordination import Gathering, run
from ottla.handlers.group_operations import authorized_operations, is_offered
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedGroup

KEY, MIN_VERSION, MAX_VERSION = 69, 0, 1


def handle(broker: Broker, request: RequestContext, body: ConsumerGroupDescribeRequest) -> Any:
    if not body.group_ids:
        return ConsumerGroupDescribeResponse()
    if not is_offered(broker):
        refused = [DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION) for group_id in body.group_ids]
        return ConsumerGroupDescribeResponse(groups=refused)
    pending, described = Pending(), ConsumerGroupDescribeResponse(groups=[DescribedGroup()] * len(body.group_ids))
    gathering = Gathering(len(body.group_ids), lambda: pending.complete(described))
    for index, group_id in enumerate(body.group_ids):
        _describe(broker, request, group_id, index, body.include_authorized_operations, described, gathering)
    return pending


def _describe(
    broker: Broker,
    request: RequestContext,
    group_id: str,
    index: int,
    with_operations: bool,
    described: ConsumerGroupDescribeResponse,
    gathering: Gathering,
) -> None:
    def answer(groups: list[DescribedGroup]) -> None:
        group = groups[0] if _may_see(broker, request, groups[0]) else _hidden(group_id)
        if with_operations and not group.error_code:
            group.authorized_operations = authorized_operations(broker, request, group_id)
        described.groups[index] = group
        gathering.part_done()

    try:
        require(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        run(broker, group_id, lambda machine, reply, _now: machine.describe_consumer_groups([group_id], reply), answer)
    except ApiError as error:
        answer([DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message or None)])


def _may_see(broker: Broker, request: RequestContext, group: DescribedGroup) -> bool:
    topics: dict[str, None] = {}
    for member in group.members:
        topics.update(dict.fromkeys(member.subscribed_topic_names))
        for assignment in (member.assignment, member.target_assignment):
            topics.update(dict.fromkeys(topic.topic_name for topic in assignment.topic_partitions))
    is_allowed = broker.authorizer.is_allowed
    return all(is_allowed(request.connection, AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics)


def _hidden(group_id: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="the group reads a topic that may not be described",
    )
