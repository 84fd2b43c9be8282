"""LeaveGroup: removes members from a group, so that it rebalances before their sessions end.

Behaviour: each member has its own result. A static member can be named by its instance id alone.

Version notes: from 3 on, a request has several members, also static ones (KIP-345). In earlier versions the error of the only member is the
error of the answer. 5 has the reason (KIP-800).

Not done: the reason is ignored.
"""

from __future__ import annotations

from typing import Any

from ottla.groups import classic_requests
from ottla.groups.answers import Left
from ottla.groups.classic.leave import refuse_leave
from ottla.groups.commands import Leave, MemberName
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import ask
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

MEMBERS_SINCE = 3


def handle(broker: Broker, request: RequestContext, body: LeaveGroupRequest) -> Any:
    is_single = request.version < MEMBERS_SINCE
    members = [MemberName(member.member_id, member.group_instance_id) for member in body.members]
    command = Leave(group_id=body.group_id, members=[MemberName(body.member_id)] if is_single else members)
    return ask(
        broker,
        request,
        body.group_id,
        lambda shard, reply, now_ms: classic_requests.leave_group(shard, command, reply, now_ms),
        respond_single if is_single else respond,
        refuse_leave,
    )


def respond(left: Left) -> LeaveGroupResponse:
    members = [MemberResponse(member_id=name, group_instance_id=instance, error_code=code) for name, instance, code in left.members]
    return LeaveGroupResponse(error_code=left.error, members=members)


def respond_single(left: Left) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=left.members[0].error if left.members else left.error)
