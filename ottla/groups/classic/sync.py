"""SyncGroup and Heartbeat: sends a generation's assignment to its members, and answers members that must join again.

The leader's SyncGroup has the assignments of all members. The coordinator logs them in the group's record, and the group becomes Stable.
When the record is committed, all waiting members are answered. If the log refuses the record, the members get the error and a new rebalance
begins. A SyncGroup to a Stable group waits for no other member. A member must name its generation; if it names a protocol (KIP-559), that
must be the chosen one.

Invariants: no assignment is sent before its record is committed; one generation at a time (I33); an earlier instance of a static member is
fenced (I34). A heartbeat is O(1) and normally creates no timer.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups import records
from ottla.groups.answers import Synced
from ottla.groups.classic import rebalance
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.member import ClassicMember
from ottla.groups.commands import Heartbeat, Sync
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE
from ottla.groups.streams.group import StreamsGroup
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import Draft, answered, same_code


def sync_group(shard: GroupShard, command: Sync, reply: Reply, now_ms: int) -> Decision:
    draft = Draft()
    try:
        if not command.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if type(shard.groups.get(command.group_id)) in (ShareGroup, StreamsGroup):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group = shard.classic_group(command.group_id)
        member = _check_sync(group, command)
        if group.state is COMPLETING_REBALANCE:
            if member.member_id == group.leader_id:
                _check_assignment_size(shard, group, command)
            _sync_completing(shard, group, member, command, reply, draft, now_ms)
        else:
            _forget_pending_sync(group, member, draft)
            rebalance.extend_session(shard, group, member, draft, now_ms)
            draft.answer(reply, _synced(group, member.assignment), rebalance.refuse_sync)
    except ApiError as refusal:
        return answered(reply, rebalance.refuse_sync(refusal.code), rebalance.refuse_sync)
    return draft.decision()


def _check_sync(group: ClassicGroup, command: Sync) -> ClassicMember:
    member = group.check_member(command.member_id, command.instance_id)
    if command.generation != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    if command.protocol_type is not None and command.protocol_type != group.protocol_type:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if command.protocol_name is not None and command.protocol_name != group.protocol_name:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def _check_assignment_size(shard: GroupShard, group: ClassicGroup, command: Sync) -> None:
    """Raises `ApiError` if the assignment of one member is too large. If all assignments together are too large, the log refuses their
    record.
    """
    limit = shard.settings.member_metadata_bytes_max
    if any(len(assignment) > limit for assignment in command.assignments.values()):
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"an assignment in group {group.group_id} is larger than {limit} bytes")


def _synced(group: ClassicGroup, assignment: bytes) -> Synced:
    return Synced(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment)


def _sync_completing(
    shard: GroupShard,
    group: ClassicGroup,
    member: ClassicMember,
    command: Sync,
    reply: Reply,
    draft: Draft,
    now_ms: int,
) -> None:
    rebalance.answer_sync(member, draft, rebalance.refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS))  # the client no longer waits
    member.sync_reply = reply
    _forget_pending_sync(group, member, draft)
    if member.member_id != group.leader_id:
        return
    assignments = {member_id: command.assignments.get(member_id, b"") for member_id in group.members}
    draft.records.append(records.group_metadata(group.group_id, group.to_record(assignments)))
    for other in group.members.values():
        if other.sync_reply is not None:
            rebalance.answer_sync(other, draft, _synced(group, assignments[other.member_id]))
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


def heartbeat(shard: GroupShard, command: Heartbeat, reply: Reply, now_ms: int) -> Decision:
    """Answers with an `ErrorCode`."""
    code, member = _check_beat(shard, command)
    if member is None:
        return answered(reply, code, same_code)
    deadline_ms = now_ms + member.session_timeout_ms
    if member.timer_ms is not None and member.timer_ms <= deadline_ms:
        member.deadline_ms = deadline_ms
        return answered(reply, code, same_code)
    draft = Draft()
    rebalance.extend_session(shard, shard.classic_group(command.group_id), member, draft, now_ms)
    draft.answer(reply, code, same_code)
    return draft.decision()


def _check_beat(shard: GroupShard, command: Heartbeat) -> tuple[ErrorCode, ClassicMember | None]:
    """Returns the answer, and the member if it belongs to the current generation."""
    if not command.group_id:
        return ErrorCode.INVALID_GROUP_ID, None
    group = shard.groups.get(command.group_id)
    if type(group) is not ClassicGroup:
        return ErrorCode.UNKNOWN_MEMBER_ID, None
    member = group.members.get(command.member_id)
    if command.instance_id is not None:
        current_id = group.static_members.get(command.instance_id)
        if current_id is not None and current_id != command.member_id:
            return ErrorCode.FENCED_INSTANCE_ID, None
        if current_id is None:
            member = None
    if member is None or group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID, None
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION, None
    return (ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE), member
