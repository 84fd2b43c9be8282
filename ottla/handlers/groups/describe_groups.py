"""DescribeGroups: the state, the protocol and the members of classic groups.

Behaviour: the answer has the members' subscriptions only while the group is Stable. It has their assignments in every state. An unknown
group has the state Dead, and so has a group that is not classic.

Version notes: 3 has authorized operations (KIP-430), 4 static members (KIP-345). From 6 on, a group with the state Dead also has the error
GROUP_ID_NOT_FOUND and a message (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups import admin
from ottla.groups.answers import DescribedClassicGroup
from ottla.handlers.authorized_operations import authorized_operations
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Gathering, run
from ottla.handlers.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse

NOT_FOUND_SINCE = 6


def handle(broker: Broker, request: RequestContext, body: DescribeGroupsRequest) -> Any:
    if not body.groups:
        return DescribeGroupsResponse()
    pending, described = Pending(), DescribeGroupsResponse(groups=[DescribedGroup()] * len(body.groups))
    gathering = Gathering(len(body.groups), lambda: pending.complete(described))
    for index, group_id in enumerate(body.groups):
        _describe(broker, request, group_id, index, body.include_authorized_operations, described, gathering)
    return pending


def _describe(
    broker: Broker,
    request: RequestContext,
    group_id: str,
    index: int,
    with_operations: bool,
    described: DescribeGroupsResponse,
    gathering: Gathering,
) -> None:
    def answer(groups: Sequence[DescribedClassicGroup]) -> None:
        group = respond(groups[0], request.version)
        if with_operations and not group.error_code:
            group.authorized_operations = authorized_operations(broker, request, ResourceType.GROUP, group_id)
        described.groups[index] = group
        gathering.part_done()

    try:
        require(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        run(broker, group_id, lambda shard, reply, _now: admin.describe_groups(shard, [group_id], reply), answer)
    except ApiError as error:
        answer([DescribedClassicGroup(group_id=group_id, error=error.code)])


def respond(group: DescribedClassicGroup, version: int) -> DescribedGroup:
    """Builds the answer. Before version 6 a group that does not exist is Dead and no error."""
    is_hidden = group.error is ErrorCode.GROUP_ID_NOT_FOUND and version < NOT_FOUND_SINCE
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.NONE if is_hidden else group.error,
        error_message=None if is_hidden else group.message,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )
