"""ConsumerGroupHeartbeat: a member joins, remains, moves towards its target, or leaves (KIP-848).

A member describes itself and its subscription when it joins or when these change. Other heartbeats have at most the partitions that the
member owns. The coordinator answers with the member's epoch. The current assignment is in the answer if it changed, if the member joins or
sends all its fields, or if its connection is new. When subscriptions change, the group's epoch rises and the server's assignor computes a
new target. Each member moves to the target with its own heartbeats (`modern/reconciliation.py`), so no member waits for all others.

A static member (instance id) that leaves temporarily keeps its assignment until its session ends. Its next process gets this assignment.

Invariants: every epoch is refused except 0 (joining), -1 and -2 (leaving), the member's own, and the previous one if the answer with the
new epoch was lost. A heartbeat that changes nothing logs nothing.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.groups import records
from ottla.groups.answers import Beat, refuse_beat
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import ConsumerHeartbeat, OwnedPartitions
from ottla.groups.consumer.group import ConsumerGroup, MemberFacts
from ottla.groups.consumer.migration import leave_classic, upgrade
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.consumer.sessions import (
    RULES,
    extend_session,
    finish_removal,
    remove_members,
    session_timeout_ms,
    watch_all_members,
)
from ottla.groups.consumer.subscriptions import check_regex, forget_regexes, must_look_up
from ottla.groups.consumer.update import GroupUpdate, MayDescribe, may_assign
from ottla.groups.modern.group import JOINING_EPOCH, LEAVING_EPOCH, admit, check_names, merged_topics
from ottla.groups.modern.members import check_ids, check_leaving, find_member, invalid, leave_for_a_moment
from ottla.groups.modern.reconciliation import next_position
from ottla.groups.modern.reconciling import LEFT_STATIC_EPOCH, ReconciledAssignment
from ottla.groups.modern.sessions import follow_revocation, stop_watching_revocation
from ottla.groups.shard import GroupShard, Session
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import Draft, answered


def heartbeat(shard: GroupShard, command: ConsumerHeartbeat, reply: Reply, now_ms: int) -> Decision:
    reply = shard.claiming(command.group_id, command.caller.owner, reply)
    try:
        _check_request(shard, command)
        if command.member_epoch < 0:
            return _leave(shard, command, reply)
        return _beat(shard, command, reply, now_ms)
    except ApiError as error:
        return answered(reply, refuse_beat(error.code, error.message), refuse_beat)


def _check_request(shard: GroupShard, command: ConsumerHeartbeat) -> None:
    """Checks the fields of a request that do not depend on the group. Raises `ApiError`."""
    is_joining = command.member_epoch == JOINING_EPOCH
    check_ids(command, may_lack_member_id=is_joining and not command.makes_member_id)
    check_names(shard.settings, (command.member_id, command.instance_id, command.rack_id, command.regex), command.topics)
    if is_joining:
        _check_joining(command)
    if command.assignor is not None and command.assignor not in shard.settings.consumer_assignors:
        known = ", ".join(shard.settings.consumer_assignors)
        raise ApiError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"assignor {command.assignor!r} is not one of: {known}")


def _check_joining(command: ConsumerHeartbeat) -> None:
    if command.owned is None or command.owned:
        raise invalid("a member that joins has no partitions")
    if command.topics is None and command.regex is None:
        raise invalid("a member that joins must say what it subscribes to")


# Joining and staying


def _beat(shard: GroupShard, command: ConsumerHeartbeat, reply: Reply, now_ms: int) -> Decision:
    draft = Draft()
    change, origin = _find_group(shard, command)
    if not command.member_id:
        command = replace(command, member_id=uuid_to_text(fresh_uuid(shard.random.token_bytes(16))))
    member_id = command.member_id
    before = find_member(change, command, shard.settings.consumer_members_max)
    position_before = change.group.position(member_id)
    if command.regex:
        check_regex(command.regex)
    facts = _merge(before, command)
    if facts is not before:
        admit(shard.memory, before, facts, shard.owner_of(command.group_id, command.caller.owner))
    advance_member(shard, change, member_id, before, facts, command.owned, command.caller.may_describe, draft, now_ms)
    position = change.group.position(member_id)
    draft.records.extend(change.records)
    if origin is not None:
        leave_classic(shard, origin, draft, now_ms)
        watch_all_members(shard, change.group, draft, now_ms)
    session = follow_member(shard, change.group, member_id, position_before, draft, now_ms)
    is_full = command.member_epoch == JOINING_EPOCH or (
        command.rebalance_timeout_ms != -1
        and command.owned is not None
        and (command.topics is not None or command.regex is not None)
    )
    # `has_moved` must be called for each heartbeat, because it records the connection.
    is_new = session.has_moved(command.caller.connection) or is_full or position.assigned != position_before.assigned
    heartbeat_interval_ms = shard.setting_of(command.group_id, "consumer.heartbeat.interval.ms")
    answer = Beat(ErrorCode.NONE, None, member_id, position.epoch, heartbeat_interval_ms, position.assigned if is_new else None)
    draft.answer(reply, answer, refuse_beat)
    return draft.decision()


def _find_group(shard: GroupShard, command: ConsumerHeartbeat) -> tuple[ConsumerChange, ClassicGroup | None]:
    """Returns the change of the group, and the classic group that it converts, if any. A joining member may
    create a group, replace an empty classic group, or convert a classic group with members."""
    group = shard.groups.get(command.group_id)
    if type(group) is ConsumerGroup:
        return ConsumerChange(group), None
    if command.member_epoch != JOINING_EPOCH:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} not found.")
    if group is not None and type(group) is not ClassicGroup:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} is not a consumer group.")
    change = ConsumerChange(ConsumerGroup(command.group_id))
    if group is None:
        return change, None
    if not group.members:
        change.records.append(records.group_tombstone(command.group_id))
        return change, None
    return upgrade(shard, group), group


def _merge(before: MemberFacts | None, command: ConsumerHeartbeat) -> MemberFacts:
    """Merges a heartbeat into the member's earlier description. Null fields keep their earlier values; an empty regex removes the regex."""
    if before is not None and _says_nothing(before, command):
        return before
    facts = before if before is not None else MemberFacts()
    regex = command.regex
    return MemberFacts(
        instance_id=command.instance_id if command.instance_id is not None else facts.instance_id,
        rack_id=command.rack_id if command.rack_id is not None else facts.rack_id,
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        topics=merged_topics(facts.topics, command.topics),
        regex=facts.regex if regex is None else (regex or None),
        rebalance_timeout_ms=command.rebalance_timeout_ms if command.rebalance_timeout_ms != -1 else facts.rebalance_timeout_ms,
        assignor=command.assignor if command.assignor is not None else facts.assignor,
    )


def _says_nothing(before: MemberFacts, command: ConsumerHeartbeat) -> bool:
    """Whether the heartbeat has no field of the member's description, and the client's id and host are the same."""
    return (
        command.topics is None
        and command.regex is None
        and command.assignor is None
        and command.rack_id is None
        and command.instance_id is None
        and command.rebalance_timeout_ms == -1
        and (before.client_id, before.client_host) == (command.caller.client_id, command.caller.client_host)
    )


def advance_member(
    shard: GroupShard,
    change: ConsumerChange,
    member_id: str,
    before: MemberFacts | None,
    facts: MemberFacts,
    owned: OwnedPartitions | None,
    may_describe: MayDescribe,
    draft: Draft,
    now_ms: int,
) -> None:
    """Processes a heartbeat of either protocol: the member's description, the group's epoch and target, and the member's current
    assignment."""
    if facts != before:
        change.put_member(member_id, facts)
    wants_other = before is None or (before.topics, before.regex) != (facts.topics, facts.regex)
    if before is not None and before.regex != facts.regex:
        forget_regexes(change)
    if change.group_id in shard.updates:
        if wants_other:
            change.raise_epoch()
    else:
        _update_group(shard, change, facts.regex, may_describe, draft, now_ms, wants_other=wants_other)
    position = next_position(change.group, member_id, owned)
    if position is not change.group.position(member_id):
        change.put_position(member_id, position)


def _update_group(
    shard: GroupShard, change: ConsumerChange, regex: str | None, may_describe: MayDescribe, draft: Draft, now_ms: int, *, wants_other: bool
) -> None:
    """Starts an update of the group if the member has another subscription, topics may have changed, or a new target is due."""
    must, patterns = must_look_up(shard, change.group, now_ms)
    if regex is not None and regex not in change.group.regexes:
        patterns.append(regex)
    if must or patterns or wants_other or may_assign(shard, change.group, now_ms):
        GroupUpdate(shard, patterns, may_describe, must_look_up=must, wants_other=wants_other).begin(change, draft, now_ms)


def follow_member(
    shard: GroupShard, group: ConsumerGroup, member_id: str, before: ReconciledAssignment, draft: Draft, now_ms: int
) -> Session:
    """Sets the timers of a member that just sent a heartbeat. `group` already has the decision's changes."""
    timeout_ms = session_timeout_ms(shard, group, member_id)
    session = extend_session(shard, group.group_id, member_id, timeout_ms, draft, now_ms)
    follow_revocation(shard, group, member_id, before, RULES, draft)
    return session


# Leaving


def _leave(shard: GroupShard, command: ConsumerHeartbeat, reply: Reply) -> Decision:
    group = shard.groups.get(command.group_id)
    if type(group) is not ConsumerGroup:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} not found.")
    member_id = command.member_id
    check_leaving(group, command)
    draft, change = Draft(), ConsumerChange(group)
    if command.member_epoch == LEFT_STATIC_EPOCH:
        leave_for_a_moment(change, member_id)
        stop_watching_revocation(group.group_id, member_id, draft)
        draft.records.extend(change.records)
    else:
        remove_members(change, [member_id])
        finish_removal(shard, change, draft)
    epoch = LEAVING_EPOCH if command.member_epoch == LEAVING_EPOCH else LEFT_STATIC_EPOCH
    draft.answer(reply, Beat(member_id=member_id, member_epoch=epoch), refuse_beat)
    return draft.decision()
