"""ShareGroupDescribe: the epochs and members of share groups, and what each member has (KIP-932).

API and versions: ShareGroupDescribe (key 77), 1.

Behaviour: a group that is unknown or of another kind is GROUP_ID_NOT_FOUND. A group that reads a topic which the principal may not
describe is TOPIC_AUTHORIZATION_FAILED as a whole. UNSUPPORTED_VERSION while the feature `share.version` is at level 0.

Version notes: 0 was an early access version that no release serves any more.

Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import AclOperation, Broker, Pending, RequestContext, ResourceType, require
from ottla.handlers.coordination import Gathering, run
from ottla.handlers.group_operations import authorized_operations
from ottla.handlers.levels import require_share_groups
from ottla.wire.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest, ShareGroupDescribeResponse

KEY, MIN_VERSION, MAX_VERSION = 77, 1, 1


def handle(broker: Broker, request: RequestContext, body: ShareGroupDescribeRequest) -> Any:
    if not body.group_ids:
        return ShareGroupDescribeResponse()
    pending, described = Pending(), ShareGroupDescribeResponse(groups=[DescribedGroup()] * len(body.group_ids))
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
    described: ShareGroupDescribeResponse,
    gathering: Gathering,
) -> None:
    def answer(groups: list[DescribedGroup]) -> None:
        group = groups[0] if _may_see(broker, request, groups[0]) else _hidden(group_id)
        if with_operations and not group.error_code:
            group.authorized_operations = authorized_operations(broker, request, group_id)
        described.groups[index] = group
        gathering.part_done()

    try:
        require_share_groups(broker.config.ottla_advertise_level)
        require(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        run(broker, group_id, lambda machine, reply, _now: machine.describe_share_groups([group_id], reply), answer)
    except ApiError as error:
        answer([DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message or None)])


def _may_see(broker: Broker, request: RequestContext, group: DescribedGroup) -> bool:
    topics: dict[str, None] = {}
    for member in group.members:
        topics.update(dict.fromkeys(member.subscribed_topic_names))
        topics.update(dict.fromkeys(topic.topic_name for topic in member.assignment.topic_partitions))
    is_allowed = broker.authorizer.is_allowed
    return all(is_allowed(request.connection, AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics)


def _hidden(group_id: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="the group reads a topic that may not be described",
    )
