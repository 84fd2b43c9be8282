"""What does ConsumerGroupHeartbeat do: join, stay, move towards the target, leave (KIP-848)?

A member says who it is and what it wants when it joins or when that changes, and else only that it lives and what it still has. The
coordinator answers with the member's epoch and, when it changed, with what the member may have now. When what the group wants changes, its
epoch rises and a new target is made by the server's assignor; each member then moves on its own heartbeats (`reconciliation.py`), so
nobody waits for everybody.

A static member (instance id) that leaves for a moment keeps its place until its session ends, and its next process takes the place over.

Invariants: an epoch that is not the member's own is refused, save the last one when the answer with the new one was lost; a heartbeat that
changes nothing logs nothing and costs the same in a group of any size.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import Uuid, fresh_uuid, uuid_to_text
from ottla.groups import records
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.group import (
    LEAVING_EPOCH,
    LEFT_STATIC_EPOCH,
    ConsumerGroup,
    MemberFacts,
    MemberState,
    Position,
)
from ottla.groups.consumer.migration import leave_classic, upgrade
from ottla.groups.consumer.reconciliation import Owned, next_position
from ottla.groups.consumer.records import Change
from ottla.groups.consumer.sessions import (
    extend_session,
    finish_removal,
    remove_members,
    session_timeout_ms,
    stop_watching_revocation,
    watch_everybody,
    watch_revocation,
)
from ottla.groups.consumer.subscriptions import (
    MayDescribe,
    check_regex,
    forget_regexes,
    may_assign,
    metadata_hash,
    must_look_up,
    resolve_regexes,
    update_target,
)
from ottla.groups.draft import Caller, Draft, answered
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.machine.contract import Decision, Reply
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING_EPOCH = 0
FIRST_VERSION_WITH_CLIENT_IDS = 1


def refusal(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message or None)


def heartbeat(shard: GroupShard, request: ConsumerGroupHeartbeatRequest, caller: Caller, reply: Reply, now_ms: int) -> Decision:
    try:
        _check_request(shard, request, caller)
        if request.member_epoch < 0:
            return _leave(shard, request, reply)
        return _beat(shard, request, caller, reply, now_ms)
    except ApiError as error:
        return answered(reply, refusal(error.code, error.message), refusal)


def _check_request(shard: GroupShard, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> None:
    def demand(is_right: object, message: str) -> None:
        if not is_right:
            raise ApiError(ErrorCode.INVALID_REQUEST, message)

    demand(request.group_id, "the group id is empty")
    epoch = request.member_epoch
    may_be_nameless = epoch == JOINING_EPOCH and caller.version < FIRST_VERSION_WITH_CLIENT_IDS
    demand(request.member_id or may_be_nameless, "the member id is empty")
    demand(request.instance_id != "", "the instance id is empty")
    demand(request.rack_id != "", "the rack id is empty")
    demand(epoch >= LEFT_STATIC_EPOCH, f"member epoch {epoch} is not valid")
    demand(epoch != LEFT_STATIC_EPOCH or request.instance_id is not None, "only a static member can leave for a moment")
    if epoch == JOINING_EPOCH:
        demand(request.rebalance_timeout_ms != -1, "a member that joins must say its rebalance timeout")
        demand(request.topic_partitions is not None and not request.topic_partitions, "a member that joins has no partitions")
        has_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        demand(has_topics, "a member that joins must say what it subscribes to")
    if request.server_assignor is not None and request.server_assignor not in shard.settings.consumer_assignors:
        known = ", ".join(shard.settings.consumer_assignors)
        raise ApiError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"assignor {request.server_assignor!r} is not one of: {known}")


# Joining and staying


def _beat(shard: GroupShard, request: ConsumerGroupHeartbeatRequest, caller: Caller, reply: Reply, now_ms: int) -> Decision:
    draft = Draft()
    change, origin = _find_group(shard, request)
    if not request.member_id:
        request.member_id = uuid_to_text(fresh_uuid(shard.random.token_bytes(16)))
    member_id = request.member_id
    before = _find_member(shard, change, request)
    position_before = change.group.position(member_id)
    if request.subscribed_topic_regex:
        check_regex(request.subscribed_topic_regex)
    facts = _merge(before, request, caller)
    owned = None if request.topic_partitions is None else _owned(request.topic_partitions)
    advance_member(shard, change, member_id, before, facts, owned, caller.may_describe, now_ms)
    position = change.group.position(member_id)
    draft.records.extend(change.records)
    if origin is not None:
        leave_classic(shard, origin, draft, now_ms)
        watch_everybody(shard, change.group, draft, now_ms)
    follow_member(shard, change.group, member_id, position_before, draft, now_ms)
    is_full = request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and owned is not None
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
    )
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id, member_epoch=position.epoch, heartbeat_interval_ms=shard.heartbeat_interval_ms(request.group_id)
    )
    has_moved = shard.sessions[request.group_id, member_id].has_moved(caller.connection)
    if is_full or has_moved or position.assigned != position_before.assigned:
        response.assignment = _assignment(position)
    draft.answer(reply, response, refusal)
    return draft.decision()


def _find_group(shard: GroupShard, request: ConsumerGroupHeartbeatRequest) -> tuple[Change, ClassicGroup | None]:
    """The group; a new one, or a classic one (the second value) turned into one, when the member joins."""
    group = shard.groups.get(request.group_id)
    if type(group) is ConsumerGroup:
        return Change(group), None
    if request.member_epoch != JOINING_EPOCH:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if type(group) is ShareGroup:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
    change = Change(ConsumerGroup(request.group_id))
    if group is None:
        return change, None
    assert isinstance(group, ClassicGroup)
    if not group.members:
        change.records.append(records.group_tombstone(request.group_id))
        return change, None
    return upgrade(shard, group), group


def _find_member(shard: GroupShard, change: Change, request: ConsumerGroupHeartbeatRequest) -> MemberFacts | None:
    """What is known of the member that speaks, after all checks; None if it is new."""
    group, member_id, epoch = change.group, request.member_id, request.member_epoch
    if request.instance_id is not None:
        current_id = group.static_members.get(request.instance_id)
        if current_id is not None and current_id != member_id:
            if epoch != JOINING_EPOCH:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance {request.instance_id} belongs to member {current_id} now")
            return _take_place(change, request.instance_id, current_id, member_id)
        if current_id is None and epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {request.instance_id} is not in the group")
    facts = group.facts.get(member_id)
    if facts is None:
        if epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
        if len(group.facts) >= shard.settings.consumer_members_max:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(group.facts)} members already")
        return None
    _check_epoch(group.position(member_id), request)
    return facts


def _check_epoch(position: Position, request: ConsumerGroupHeartbeatRequest) -> None:
    epoch = request.member_epoch
    if epoch in (JOINING_EPOCH, position.epoch):
        return
    if epoch == position.previous_epoch and request.topic_partitions is not None and epoch < position.epoch:
        owned = _owned(request.topic_partitions)
        if all(partition in position.assigned.get(topic_id, ()) for topic_id, partitions in owned.items() for partition in partitions):
            return  # the answer that told the member its new epoch was lost
    raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {epoch} is not the member's epoch {position.epoch}; it must join again")


def _take_place(change: Change, instance_id: str, old_id: str, member_id: str) -> MemberFacts:
    """A new process of a static member takes over what the former one had, which must have left if it could say so.

    A classic one cannot: it stops without a word, and its next process may speak the new protocol.
    """
    position = change.group.position(old_id)
    if position.epoch != LEFT_STATIC_EPOCH and change.group.facts[old_id].classic is None:
        raise ApiError(ErrorCode.UNRELEASED_INSTANCE_ID, f"instance {instance_id} is still in use by member {old_id}")
    facts, target = change.group.facts[old_id], change.group.target.get(old_id, {})
    change.remove_member(old_id)
    change.put_member(member_id, facts)
    change.put_target(member_id, target)
    change.put_position(member_id, Position(0, 0, MemberState.STABLE, position.assigned))
    return facts


def _merge(before: MemberFacts | None, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> MemberFacts:
    """What the member says now, over what it said before; a field that is null is as before."""
    facts = before if before is not None else MemberFacts()
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return MemberFacts(
        instance_id=request.instance_id if request.instance_id is not None else facts.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else facts.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=facts.topics if names is None else tuple(sorted(dict.fromkeys(names))),
        regex=facts.regex if regex is None else (regex or None),
        rebalance_timeout_ms=request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else facts.rebalance_timeout_ms,
        assignor=request.server_assignor if request.server_assignor is not None else facts.assignor,
    )


def _owned(topics: list[Any]) -> dict[Uuid, frozenset[int]]:
    return {bytes(topic.topic_id): frozenset(topic.partitions) for topic in topics}


def advance_member(
    shard: GroupShard,
    change: Change,
    member_id: str,
    before: MemberFacts | None,
    facts: MemberFacts,
    owned: Owned | None,
    may_describe: MayDescribe,
    now_ms: int,
) -> None:
    """One member's step, whichever protocol it speaks: its facts, the group's epoch and target, its own position."""
    if facts != before:
        change.put_member(member_id, facts)
    wants_other = before is None or (before.topics, before.regex) != (facts.topics, facts.regex)
    if before is not None and before.regex != facts.regex:
        forget_regexes(change)
    if facts.regex is not None and facts.regex not in change.group.regexes:
        resolve_regexes(shard, change, (facts.regex,), may_describe, now_ms)
    if must_look_up(shard, change.group, change, may_describe, now_ms) or wants_other:
        topics_hash = metadata_hash(shard, change.group)
        if wants_other or topics_hash != change.group.metadata_hash:
            change.put_epoch(change.group.epoch + 1, topics_hash)
    if may_assign(shard, change.group, now_ms):
        update_target(shard, change, now_ms)
    position = next_position(change.group, member_id, owned)
    if position is not change.group.position(member_id):
        change.put_position(member_id, position)


def follow_member(shard: GroupShard, group: ConsumerGroup, member_id: str, before: Position, draft: Draft, now_ms: int) -> None:
    """The timers of a member that was just heard of. `group` is as it will be."""
    timeout_ms = session_timeout_ms(shard, group, member_id)
    extend_session(shard, group.group_id, member_id, timeout_ms, draft, now_ms)
    position = group.position(member_id)
    if position.state is MemberState.UNREVOKED_PARTITIONS:
        if before.state is not MemberState.UNREVOKED_PARTITIONS:
            watch_revocation(group, shard, member_id, draft)
    elif before.state is MemberState.UNREVOKED_PARTITIONS:
        stop_watching_revocation(group, member_id, draft)


def _assignment(position: Position) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in position.assigned.items()
        ]
    )


# Leaving


def _leave(shard: GroupShard, request: ConsumerGroupHeartbeatRequest, reply: Reply) -> Decision:
    group = shard.groups.get(request.group_id)
    if type(group) is not ConsumerGroup:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    member_id = request.member_id
    if request.instance_id is not None:
        current_id = group.static_members.get(request.instance_id)
        if current_id is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {request.instance_id} is not in the group")
        if current_id != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance {request.instance_id} belongs to member {current_id} now")
    elif member_id not in group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
    draft, change = Draft(), Change(group)
    if request.member_epoch == LEFT_STATIC_EPOCH:
        position = group.position(member_id)
        change.put_position(member_id, Position(LEFT_STATIC_EPOCH, position.epoch, MemberState.STABLE, position.assigned))
        stop_watching_revocation(group, member_id, draft)
        draft.records.extend(change.records)
    else:
        remove_members(change, [member_id])
        finish_removal(shard, change, draft)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=LEAVING_EPOCH if request.member_epoch == LEAVING_EPOCH else LEFT_STATIC_EPOCH,
    )
    draft.answer(reply, response, refusal)
    return draft.decision()
