"""What does LeaveGroup do: members go, one by one or many at once, and the others rebalance without waiting for sessions to end.

Static members may be sent away by their instance id alone (KIP-345): that is how an operator removes a consumer that will not come back.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.classic import rebalance
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.draft import Draft, answered
from ottla.groups.shard import GroupShard
from ottla.groups.states import EMPTY
from ottla.machine.contract import Decision, Reply
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse


def leave_refusal(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


def leave_group(shard: GroupShard, request: LeaveGroupRequest, reply: Reply, now_ms: int) -> Decision:
    """`request.members` names who leaves, whatever the request's version."""
    if not request.group_id:
        return answered(reply, leave_refusal(ErrorCode.INVALID_GROUP_ID), leave_refusal)
    group = shard.groups.get(request.group_id)
    draft = Draft()
    if type(group) is not ClassicGroup:
        members = [_outcome(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in request.members]
        return answered(reply, LeaveGroupResponse(members=members), leave_refusal)
    count = len(group.members)
    members = [_outcome(identity, _leave(shard, group, identity, draft, now_ms)) for identity in request.members]
    if len(group.members) < count and group.state is not EMPTY:
        rebalance.maybe_rebalance(shard, group, draft, now_ms)
    draft.answer(reply, LeaveGroupResponse(members=members), leave_refusal)
    return draft.decision()


def _outcome(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)


def _leave(shard: GroupShard, group: ClassicGroup, identity: MemberIdentity, draft: Draft, now_ms: int) -> ErrorCode:
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        member_id = group.static_members.get(identity.group_instance_id, "")
    elif member_id in group.pending_members:
        rebalance.forget_pending(shard, group, member_id, draft, now_ms)
        return ErrorCode.NONE
    try:
        member = group.check_member(member_id, identity.group_instance_id)
    except ApiError as refusal:
        return refusal.code
    rebalance.drop_member(group, member, draft)
    return ErrorCode.NONE
