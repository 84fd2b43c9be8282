"""LeaveGroup: removes one or more members and begins a rebalance of the others.

Static members may be removed by their instance id alone (KIP-345), so that an operator can remove a consumer that will not return.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import Left, MemberLeft
from ottla.groups.classic import rebalance
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import Leave, MemberName
from ottla.groups.shard import GroupShard
from ottla.groups.states import EMPTY
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import Draft, answered


def refuse_leave(code: ErrorCode) -> Left:
    return Left(error=code)


def leave_group(shard: GroupShard, command: Leave, reply: Reply, now_ms: int) -> Decision:
    if not command.group_id:
        return answered(reply, refuse_leave(ErrorCode.INVALID_GROUP_ID), refuse_leave)
    group = shard.groups.get(command.group_id)
    draft = Draft()
    if type(group) is not ClassicGroup:
        members = [_outcome(name, ErrorCode.UNKNOWN_MEMBER_ID) for name in command.members]
        return answered(reply, Left(members=members), refuse_leave)
    count = len(group.members)
    members = [_outcome(name, _leave(shard, group, name, draft, now_ms)) for name in command.members]
    if len(group.members) < count and group.state is not EMPTY:
        rebalance.maybe_rebalance(shard, group, draft, now_ms)
    draft.answer(reply, Left(members=members), refuse_leave)
    return draft.decision()


def _outcome(name: MemberName, code: ErrorCode) -> MemberLeft:
    return MemberLeft(name.member_id, name.instance_id, code)


def _leave(shard: GroupShard, group: ClassicGroup, name: MemberName, draft: Draft, now_ms: int) -> ErrorCode:
    member_id = name.member_id
    if not member_id and name.instance_id is not None:
        member_id = group.static_members.get(name.instance_id, "")
    elif member_id in group.pending_members:
        rebalance.forget_pending(shard, group, member_id, draft, now_ms)
        return ErrorCode.NONE
    try:
        member = group.check_member(member_id, name.instance_id)
    except ApiError as refusal:
        return refusal.code
    rebalance.drop_member(group, member, draft)
    return ErrorCode.NONE
