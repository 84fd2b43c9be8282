"""What do SyncGroup and Heartbeat do: how a generation's assignment is spread, and how a member learns that it must join again.

The leader's SyncGroup brings everybody's assignment. It is logged first; when it is committed all waiting members are answered and the
group is Stable. If the log refuses it, the members are told so and a new round begins. A member whose SyncGroup comes later is answered at
once. A member may only speak for its generation, and (version 5+, KIP-559) must name the protocol that was chosen.

Invariants: no assignment leaves before its record is committed; one generation at a time (I33); a static member's former self is fenced
(I34). A heartbeat is O(1) and makes no timer.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups import records
from ottla.groups.classic import rebalance
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.member import ClassicMember
from ottla.groups.draft import Draft, answered
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE
from ottla.machine.contract import Answer, Decision, Effect, Reply
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync_refusal(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def heartbeat_response(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def sync_group(shard: GroupShard, request: SyncGroupRequest, reply: Reply, now_ms: int) -> Decision:
    draft = Draft()
    try:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if type(shard.groups.get(request.group_id)) is ShareGroup:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group = shard.classic_group(request.group_id)
        member = _check_sync(group, request)
        if group.state is COMPLETING_REBALANCE:
            if member.member_id == group.leader_id:
                _check_assignment_size(shard, group, request)
            _sync_completing(shard, group, member, request, reply, draft, now_ms)
        else:
            _forget_pending_sync(group, member, draft)
            rebalance.extend_session(shard, group, member, draft, now_ms)
            draft.answer(reply, _share(group, member.assignment), sync_refusal)
    except ApiError as refusal:
        return answered(reply, sync_refusal(refusal.code), sync_refusal)
    return draft.decision()


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ClassicMember:
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def _check_assignment_size(shard: GroupShard, group: ClassicGroup, request: SyncGroupRequest) -> None:
    """All assignments of a group stand in one record, which must fit a batch of the internal topic."""
    limit = shard.settings.member_metadata_bytes_max
    if any(len(assignment.assignment) > limit for assignment in request.assignments):
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"an assignment in group {group.group_id} is larger than {limit} bytes")


def _share(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment)


def _sync_completing(
    shard: GroupShard,
    group: ClassicGroup,
    member: ClassicMember,
    request: SyncGroupRequest,
    reply: Reply,
    draft: Draft,
    now_ms: int,
) -> None:
    rebalance.answer_sync(member, draft, sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))  # the client gave up the one that waits
    member.sync_reply = reply
    _forget_pending_sync(group, member, draft)
    if member.member_id != group.leader_id:
        return
    assignments = dict.fromkeys(group.members, b"")
    for assignment in request.assignments:
        if assignment.member_id in assignments:
            assignments[assignment.member_id] = bytes(assignment.assignment)
    draft.records.append(records.group_metadata(group.group_id, group.to_record(assignments)))
    for other in group.members.values():
        if other.sync_reply is not None:
            rebalance.answer_sync(other, draft, _share(group, assignments[other.member_id]))
            rebalance.extend_session(shard, group, other, draft, now_ms)
    generation = group.generation

    def join_again(repair: Draft, _code: ErrorCode) -> None:
        if group.generation == generation and group.state is COMPLETING_REBALANCE:
            rebalance.prepare_rebalance(shard, group, repair, now_ms)

    draft.on_refusal(join_again)


def _forget_pending_sync(group: ClassicGroup, member: ClassicMember, draft: Draft) -> None:
    if group.pending_syncs.pop(member.member_id, True) is None and not group.pending_syncs:
        rebalance.all_synced(group, draft)


# Heartbeats


def heartbeat(shard: GroupShard, request: HeartbeatRequest, reply: Reply, now_ms: int) -> Decision:
    code, effects = _beat(shard, request, now_ms)
    return Decision(
        effects=(Answer(reply, heartbeat_response(code)), *effects), refused=lambda code: (Answer(reply, heartbeat_response(code)),)
    )


def _beat(shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> tuple[ErrorCode, tuple[Effect, ...]]:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID, ()
    group = shard.groups.get(request.group_id)
    if type(group) is not ClassicGroup:
        return ErrorCode.UNKNOWN_MEMBER_ID, ()
    member = group.members.get(request.member_id)
    if request.group_instance_id is not None:
        current_id = group.static_members.get(request.group_instance_id)
        if current_id is not None and current_id != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID, ()
        if current_id is None:
            member = None
    if member is None or group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID, ()
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION, ()
    deadline_ms = now_ms + member.session_timeout_ms
    if member.timer_ms is None or member.timer_ms > deadline_ms:
        draft = Draft()
        rebalance.extend_session(shard, group, member, draft, now_ms)
        effects = tuple(draft.decision().effects)
    else:
        member.deadline_ms = deadline_ms
        effects = ()
    return (ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE), effects
