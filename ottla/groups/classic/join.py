"""JoinGroup: adds a member or updates one, and starts a rebalance if necessary.

From version 4 on, a dynamic member without an id gets an id and has to join again with it (MEMBER_ID_REQUIRED, KIP-394). A client that
gives up waiting therefore does not become a member. A static member (KIP-345) that joins without an id replaces its earlier instance: the
old id is fenced. If the group is stable and keeps its protocol, the replacement causes no rebalance. A replacing leader must not assign:
from version 9 on the answer says so (KIP-814), and earlier versions get the old id as the leader.

Invariants: at most `group.max.size` members join a generation; all members support a common protocol.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import is_too_long
from ottla.groups import records
from ottla.groups.classic import rebalance
from ottla.groups.classic.group import ClassicGroup, metadata_bytes, protocols_bytes
from ottla.groups.classic.member import ClassicMember
from ottla.groups.commands import Join, Protocols
from ottla.groups.settings import MEMBER_BYTES
from ottla.groups.shard import GroupShard
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import Draft

ASK_METADATA_LATE = frozenset({"kafka-python"})
"""Software names of clients that send JoinGroup before they have the metadata of their topics: JoinGroup 10 ms after subscribing, Metadata
100 ms after it.

A leader without metadata assigns nothing, and joins again when it has the metadata. If `poll` returns during this second rebalance,
kafka-python 3.0 never completes it and has no partitions. The first rebalance of an empty group therefore waits for the metadata
(`rebalance.py`).
"""


class Joining(NamedTuple):
    """A JoinGroup that passed the group's checks, and the draft of the decision."""

    shard: GroupShard
    group: ClassicGroup
    command: Join
    protocols: Protocols
    reply: Reply
    draft: Draft
    now_ms: int


def join_group(shard: GroupShard, command: Join, reply: Reply, now_ms: int) -> Decision:
    draft = Draft()
    try:
        protocols = _read_protocols(shard, command)
        group = _find_group(shard, command, now_ms)
        _check_size(shard, group, command.member_id, draft, now_ms)
        _check_metadata(shard, group, command.member_id, protocols)
        if not group.may_use(command.protocol_type, protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        join = Joining(shard, group, command, protocols, reply, draft, now_ms)
        if command.member_id:
            _join_known(join)
        elif command.instance_id is not None:
            _join_static(join)
        else:
            _join_dynamic(join)
    except ApiError as refusal:
        created = shard.groups.get(command.group_id)
        if type(created) is ClassicGroup:
            shard.forget_if_idle(created)
        member_id = command.member_id
        draft.answer(reply, rebalance.refuse_join(refusal.code, member_id), lambda code: rebalance.refuse_join(code, member_id))
    return draft.decision()


def _read_protocols(shard: GroupShard, command: Join) -> Protocols:
    settings = shard.settings
    if not command.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    if not settings.session_timeout_min_ms <= command.session_timeout_ms <= settings.session_timeout_max_ms:
        raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
    if is_too_long(command.instance_id, command.protocol_type):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    protocols = dict(command.protocols)
    if is_too_long(*protocols):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if len(protocols) > settings.protocols_per_member_max:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if sum(map(len, protocols.values())) > settings.member_metadata_bytes_max:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    return tuple(protocols.items())


def _find_group(shard: GroupShard, command: Join, now_ms: int) -> ClassicGroup:
    group = shard.groups.get(command.group_id)
    if group is None:
        if command.member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        group = shard.groups[command.group_id] = ClassicGroup(command.group_id, now_ms)
    if type(group) is not ClassicGroup:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    shard.claim(command.group_id, command.caller.owner)
    return group


def _check_size(shard: GroupShard, group: ClassicGroup, member_id: str, draft: Draft, now_ms: int) -> None:
    """Refuses a member beyond `group.max.size`, and removes the member or its pending id. During a join phase only members with a waiting
    JoinGroup are counted, because the other members may never join again.
    """
    limit = shard.settings.members_max
    member = group.members.get(member_id)
    if group.state is PREPARING_REBALANCE:
        is_full = (member is None or member.join_reply is None) and group.joining >= limit
    else:
        is_full = group.state is not EMPTY and member is None and len(group.members) >= limit
    if not is_full:
        return
    if member_id in group.pending_members:
        rebalance.forget_pending(shard, group, member_id, draft, now_ms)
    elif member is not None:
        rebalance.drop_member(group, member, draft)
        rebalance.maybe_complete_join(shard, group, draft, now_ms)
    raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)


def _check_metadata(shard: GroupShard, group: ClassicGroup, member_id: str, protocols: Protocols) -> None:
    """Raises GROUP_MAX_SIZE_REACHED if the metadata of all members together would exceed its limit in memory."""
    before = group.members.get(member_id)
    kept_bytes = group.metadata_bytes - (metadata_bytes(before.protocols) if before is not None else 0)
    if kept_bytes + metadata_bytes(protocols) > shard.settings.group_metadata_bytes_max:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)


def _join_dynamic(join: Joining) -> None:
    shard, command = join.shard, join.command
    member_id = shard.fresh_member_id(command.caller.client_id)
    if not command.needs_member_id:
        _add_member(join, member_id)
        return
    if len(join.group.pending_members) >= shard.settings.pending_members_max:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    shard.memory.admit(MEMBER_BYTES, join.group.owner)
    rebalance.expect_member(shard, join.group, member_id, command.session_timeout_ms, join.draft)
    refusal = rebalance.refuse_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    join.draft.answer(join.reply, refusal, lambda code: rebalance.refuse_join(code, ""))


def _add_member(join: Joining, member_id: str) -> None:
    shard, group, command = join.shard, join.group, join.command
    shard.memory.admit(MEMBER_BYTES + protocols_bytes(join.protocols), group.owner)
    if not group.members:
        group.protocol_type = command.protocol_type
    member = ClassicMember(
        member_id=member_id,
        instance_id=command.instance_id,
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        session_timeout_ms=command.session_timeout_ms,
        protocols=join.protocols,
        asks_metadata_late=command.caller.software in ASK_METADATA_LATE,
    )
    member.is_new = True
    if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
        group.has_new_member = True
    group.add(member)
    member.join_reply = join.reply
    group.joining += 1
    # The coordinator cannot see that a waiting client has given up, so the wait of a new member is limited.
    rebalance.extend_session(shard, group, member, join.draft, join.now_ms, shard.settings.new_member_join_timeout_ms)
    rebalance.maybe_rebalance(shard, group, join.draft, join.now_ms)


def _update_member(join: Joining, member: ClassicMember) -> None:
    """Updates the member from its new JoinGroup, which then waits. An earlier JoinGroup that still waits is answered with
    REBALANCE_IN_PROGRESS.
    """
    group, command = join.group, join.command
    rebalance.answer_join(member, group, join.draft, rebalance.refuse_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.set_protocols(member, join.protocols)
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.session_timeout_ms = command.session_timeout_ms
    member.join_reply = join.reply
    group.joining += 1


def _join_known(join: Joining) -> None:
    """Processes a JoinGroup with a member id: the first after MEMBER_ID_REQUIRED, or a later one."""
    group, member_id, instance_id = join.group, join.command.member_id, join.command.instance_id
    if member_id in group.pending_members and instance_id is None:
        _add_member(join, member_id)
        return
    member = group.check_member(member_id, instance_id)
    is_retry = member.protocols == join.protocols
    is_leader = group.leader_id == member_id
    if group.state is COMPLETING_REBALANCE and is_retry:
        # The first answer to this JoinGroup was lost: repeat it.
        _answer_present(join, with_members=is_leader)
    elif group.state is STABLE and is_retry and not is_leader:
        _answer_present(join, with_members=False)
    elif group.state is EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        _update_member(join, member)
        rebalance.maybe_rebalance(join.shard, group, join.draft, join.now_ms)


def _answer_present(join: Joining, *, with_members: bool) -> None:
    member_id = join.command.member_id
    answer = rebalance.joined(join.group, member_id, with_members=with_members)
    join.draft.answer(join.reply, answer, lambda code: rebalance.refuse_join(code, member_id))


# Static members


def _join_static(join: Joining) -> None:
    shard, group, instance_id = join.shard, join.group, join.command.instance_id
    assert instance_id is not None
    member_id = shard.fresh_member_id(instance_id)
    old_id = group.static_members.get(instance_id)
    if old_id is None:
        _add_member(join, member_id)
        return
    member = group.members[old_id]
    old = _Former(group, member)
    _take_place(group, member, member_id, join.draft)
    _update_member(join, member)
    rebalance.extend_session(shard, group, member, join.draft, join.now_ms)
    if group.state is STABLE and group.select_protocol() == group.protocol_name:
        _persist_replacement(join, member, old)
    else:
        rebalance.maybe_rebalance(shard, group, join.draft, join.now_ms)


class _Former:
    """The state of a static member before another process replaced it."""

    def __init__(self, group: ClassicGroup, member: ClassicMember) -> None:
        self.leader_id = group.leader_id
        self.member_id = member.member_id
        self.protocols = member.protocols
        self.rebalance_timeout_ms = member.rebalance_timeout_ms
        self.session_timeout_ms = member.session_timeout_ms


def _take_place(group: ClassicGroup, member: ClassicMember, member_id: str, draft: Draft) -> None:
    """Gives a static member a new id: requests with the old one are fenced, and the old session timer finds no member."""
    rebalance.answer_join(member, group, draft, rebalance.refuse_join(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    rebalance.answer_sync(member, draft, rebalance.refuse_sync(ErrorCode.FENCED_INSTANCE_ID))
    group.rename(member, member_id)
    member.timer_ms = None


def _persist_replacement(join: Joining, member: ClassicMember, old: _Former) -> None:
    """Logs the new id of a static member of a stable group. The group stays stable, and the member keeps its assignment."""
    group, new_id = join.group, member.member_id
    is_leader = group.leader_id == new_id
    may_skip = join.command.may_skip_assignment
    answer = rebalance.joined(group, new_id, with_members=may_skip and is_leader)
    if may_skip:
        answer = replace(answer, skip_assignment=is_leader)
    else:
        # A client before version 9 does not assign, because the answer names its old id as the leader.
        answer = replace(answer, leader_id=old.leader_id or "")
    rebalance.answer_join(member, group, join.draft, answer)
    join.draft.records.append(records.group_metadata(group.group_id, group.to_record({})))

    def undo(repair: Draft, _code: ErrorCode) -> None:
        if group.members.get(new_id) is not member:
            return
        group.rename(member, old.member_id)
        group.set_protocols(member, old.protocols)
        member.rebalance_timeout_ms = old.rebalance_timeout_ms
        member.session_timeout_ms = old.session_timeout_ms
        member.timer_ms = None
        rebalance.extend_session(join.shard, group, member, repair, join.now_ms)

    join.draft.on_refusal(undo)
