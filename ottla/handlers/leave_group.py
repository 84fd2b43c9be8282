"""LeaveGroup: members go, and the group rebalances without waiting for their sessions to end.

Behaviour: each member has its own result. A static member can be named by its instance id alone.

Version notes: 3 several members at once and static members (KIP-345), before that the one member's error is the answer's; 5 reason
(KIP-800).

Not done: the reason is not kept.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError
from ottla.groups.classic.leave import leave_refusal
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.coordination import run
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

MEMBERS_SINCE = 3


def handle(broker: Broker, request: RequestContext, body: LeaveGroupRequest) -> Any:
    pending, is_single = Pending(), request.version < MEMBERS_SINCE
    if is_single:
        body.members = [MemberIdentity(member_id=body.member_id)]

    def answer(response: LeaveGroupResponse) -> None:
        if is_single and response.members:
            response = LeaveGroupResponse(error_code=response.members[0].error_code)
        pending.complete(response)

    try:
        require(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        run(broker, body.group_id, lambda machine, reply, now_ms: machine.leave_group(body, reply, now_ms), answer)
    except ApiError as error:
        answer(leave_refusal(error.code))
    return pending
