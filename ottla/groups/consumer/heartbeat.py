"""ConsumerGroupHeartbeat: a member joins, remains, moves towards its target, or leaves (KIP-848).

A member describes itself and its subscription when it joins or when these change; other heartbeats only have the partitions that it owns.
The coordinator answers with the member's epoch. The current assignment is in the answer if it changed, if the member joins or sends all its
fields, or if its connection is new. When subscriptions change, the group's epoch rises and the server's assignor computes a new target.
Each member moves to the target with its own heartbeats (`reconciliation.py`), so no member waits for all others.

A static member (instance id) that leaves temporarily keeps its assignment until its session ends. Its next process gets this assignment.

Invariants: every epoch is refused except 0 (joining), -1 and -2 (leaving), the member's own, and the previous one if the answer with the
new epoch was lost; a heartbeat that changes nothing logs nothing and costs the same in a group of any size.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.groups import records
from ottla.groups.answers import Beat, refuse_beat
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import ConsumerHeartbeat, OwnedPartitions
from ottla.groups.consumer.group import (
    LEFT_STATIC_EPOCH,
    ConsumerAssignment,
    ConsumerGroup,
    MemberFacts,
    MemberState,
)
from ottla.groups.consumer.migration import leave_classic, upgrade
from ottla.groups.consumer.reconciliation import next_position
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.consumer.sessions import (
    extend_session,
    finish_removal,
    remove_members,
    session_timeout_ms,
    stop_watching_revocation,
    watch_all_members,
    watch_revocation,
)
from ottla.groups.consumer.subscriptions import check_regex, forget_regexes, must_look_up
from ottla.groups.consumer.update import GroupUpdate, MayDescribe, may_assign
from ottla.groups.modern.group import JOINING_EPOCH, LEAVING_EPOCH, admit, check_names, fenced, find_facts, merged_topics
from ottla.groups.shard import GroupShard, Session
from ottla.groups.share.group import ShareGroup
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
    epoch = command.member_epoch
    if not command.group_id.strip():
        raise _invalid("the group id is empty")
    if not command.member_id and (epoch != JOINING_EPOCH or command.makes_member_id):
        raise _invalid("the member id is empty")
    if command.instance_id == "":
        raise _invalid("the instance id is empty")
    if command.rack_id == "":
        raise _invalid("the rack id is empty")
    check_names(shard.settings, (command.member_id, command.instance_id, command.rack_id, command.regex), command.topics)
    if epoch < LEFT_STATIC_EPOCH:
        raise _invalid(f"member epoch {epoch} is not valid")
    if epoch == LEFT_STATIC_EPOCH and command.instance_id is None:
        raise _invalid("only a static member can leave for a moment")
    if epoch == JOINING_EPOCH:
        _check_joining(command)
    if command.assignor is not None and command.assignor not in shard.settings.consumer_assignors:
        known = ", ".join(shard.settings.consumer_assignors)
        raise ApiError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"assignor {command.assignor!r} is not one of: {known}")


def _check_joining(command: ConsumerHeartbeat) -> None:
    if command.rebalance_timeout_ms == -1:
        raise _invalid("a member that joins must say its rebalance timeout")
    if command.owned is None or command.owned:
        raise _invalid("a member that joins has no partitions")
    if command.topics is None and command.regex is None:
        raise _invalid("a member that joins must say what it subscribes to")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


# Joining and staying


def _beat(shard: GroupShard, command: ConsumerHeartbeat, reply: Reply, now_ms: int) -> Decision:
    draft = Draft()
    change, origin = _find_group(shard, command)
    if not command.member_id:
        command = replace(command, member_id=uuid_to_text(fresh_uuid(shard.random.token_bytes(16))))
    member_id = command.member_id
    before = _find_member(shard, change, command)
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
    if type(group) is ShareGroup:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} is not a consumer group.")
    change = ConsumerChange(ConsumerGroup(command.group_id))
    if group is None:
        return change, None
    assert isinstance(group, ClassicGroup)
    if not group.members:
        change.records.append(records.group_tombstone(command.group_id))
        return change, None
    return upgrade(shard, group), group


def _find_member(shard: GroupShard, change: ConsumerChange, command: ConsumerHeartbeat) -> MemberFacts | None:
    """Returns the member that sent the heartbeat, after all checks; None if it is new."""
    group, member_id, epoch = change.group, command.member_id, command.member_epoch
    if command.instance_id is not None:
        current_id = group.static_members.get(command.instance_id)
        if current_id is not None and current_id != member_id:
            if epoch != JOINING_EPOCH:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance {command.instance_id} belongs to member {current_id} now")
            return _take_place(change, command.instance_id, current_id, member_id)
        if current_id is None and epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {command.instance_id} is not in the group")
    facts = find_facts(group, member_id, epoch, shard.settings.consumer_members_max)
    if facts is not None:
        _check_epoch(group.position(member_id), command)
    return facts


def _check_epoch(position: ConsumerAssignment, command: ConsumerHeartbeat) -> None:
    epoch = command.member_epoch
    if epoch in (JOINING_EPOCH, position.epoch):
        return
    if epoch == position.previous_epoch and command.owned is not None and epoch < position.epoch:
        owned = command.owned.items()
        if all(partition in position.assigned.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions):
            return  # the answer with the member's new epoch was lost
    raise fenced(position, epoch)


def _take_place(change: ConsumerChange, instance_id: str, old_id: str, member_id: str) -> MemberFacts:
    """Gives a new process of a static member the assignment of the earlier process, which must have left temporarily.

    A member with the classic protocol is replaced even if it has not left: classic static members stop without LeaveGroup.
    """
    position = change.group.position(old_id)
    if position.epoch != LEFT_STATIC_EPOCH and change.group.facts[old_id].classic is None:
        raise ApiError(ErrorCode.UNRELEASED_INSTANCE_ID, f"instance {instance_id} is still in use by member {old_id}")
    facts, target = change.group.facts[old_id], change.group.target.get(old_id, {})
    change.remove_member(old_id)
    change.put_member(member_id, facts)
    change.put_target(member_id, target)
    change.put_position(member_id, ConsumerAssignment.settled(0, 0, position.assigned))
    return facts


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
    """Starts an update of the group if a member has another subscription, topics may have changed, or a new target is due."""
    must, patterns = must_look_up(shard, change.group, now_ms)
    if regex is not None and regex not in change.group.regexes:
        patterns.append(regex)
    if must or patterns or wants_other or may_assign(shard, change.group, now_ms):
        GroupUpdate(shard, patterns, may_describe, must_look_up=must, wants_other=wants_other).begin(change, draft, now_ms)


def follow_member(
    shard: GroupShard, group: ConsumerGroup, member_id: str, before: ConsumerAssignment, draft: Draft, now_ms: int
) -> Session:
    """Sets the timers of a member that just sent a heartbeat. `group` already has the decision's changes."""
    timeout_ms = session_timeout_ms(shard, group, member_id)
    session = extend_session(shard, group.group_id, member_id, timeout_ms, draft, now_ms)
    position = group.position(member_id)
    if position.state is MemberState.UNREVOKED_PARTITIONS:
        if before.state is not MemberState.UNREVOKED_PARTITIONS:
            watch_revocation(group, shard, member_id, draft)
    elif before.state is MemberState.UNREVOKED_PARTITIONS:
        stop_watching_revocation(group, member_id, draft)
    return session


# Leaving


def _leave(shard: GroupShard, command: ConsumerHeartbeat, reply: Reply) -> Decision:
    group = shard.groups.get(command.group_id)
    if type(group) is not ConsumerGroup:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} not found.")
    member_id = command.member_id
    if command.instance_id is not None:
        current_id = group.static_members.get(command.instance_id)
        if current_id is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {command.instance_id} is not in the group")
        if current_id != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance {command.instance_id} belongs to member {current_id} now")
    elif member_id not in group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
    draft, change = Draft(), ConsumerChange(group)
    if command.member_epoch == LEFT_STATIC_EPOCH:
        position = group.position(member_id)
        change.put_position(member_id, ConsumerAssignment.settled(LEFT_STATIC_EPOCH, position.epoch, position.assigned))
        stop_watching_revocation(group, member_id, draft)
        draft.records.extend(change.records)
    else:
        remove_members(change, [member_id])
        finish_removal(shard, change, draft)
    epoch = LEAVING_EPOCH if command.member_epoch == LEAVING_EPOCH else LEFT_STATIC_EPOCH
    draft.answer(reply, Beat(member_id=member_id, member_epoch=epoch), refuse_beat)
    return draft.decision()
