"""DescribeGroups: the state, the protocol and the members of classic groups.

Behaviour: subscriptions and assignments are shown while the group is Stable. An unknown group is Dead.

Version notes: 3 authorized operations (KIP-430); 4 static members (KIP-345); 6 GROUP_ID_NOT_FOUND with a message for an unknown group
(KIP-1043).

Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError
from ottla.requests.authorized_operations import authorized_operations
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.coordination import Gathering, caller_of, run
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


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
    caller = caller_of(request)

    def answer(groups: list[DescribedGroup]) -> None:
        if with_operations and not groups[0].error_code:
            groups[0].authorized_operations = authorized_operations(broker, request, ResourceType.GROUP, group_id)
        described.groups[index] = groups[0]
        gathering.part_done()

    try:
        require(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        run(broker, group_id, lambda machine, reply, _now: machine.describe_groups([group_id], caller, reply), answer)
    except ApiError as error:
        answer([DescribedGroup(group_id=group_id, error_code=error.code)])
