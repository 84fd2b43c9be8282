"""Requests of the classic protocol in a consumer group, whose members may use either protocol (KIP-848).

A JoinGroup has the effect of a full heartbeat. It is answered at once, with the member's epoch as the generation. No member is the leader,
because the coordinator assigns. SyncGroup returns the member's assignment. A Heartbeat is answered with REBALANCE_IN_PROGRESS when the
member should join again to get other partitions or to confirm a revocation. A member that does not join within its rebalance timeout is
removed.

Invariants: a member uses one protocol at a time; SyncGroup and Heartbeat refuse members of the new protocol.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import Joined, Left, MemberLeft, Synced
from ottla.groups.classic import rebalance
from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE, read_subscription
from ottla.groups.classic.leave import refuse_leave
from ottla.groups.commands import Heartbeat, Join, Leave, MemberName, Protocols, Sync
from ottla.groups.consumer.group import ClassicFacts, ConsumerGroup, MemberFacts
from ottla.groups.consumer.heartbeat import advance_member, follow_member
from ottla.groups.consumer.migration import by_topic_id, is_downgrade_allowed, may_downgrade, protocol_after_downgrade, write_assignment
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.consumer.sessions import await_join, extend_session, finish_removal, joined_in_time, remove_members
from ottla.groups.consumer.update import may_assign
from ottla.groups.modern.reconciling import MemberState, ReconciledAssignment
from ottla.groups.shard import GroupShard
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import Draft, answered, same_code

# Join


def join_group(shard: GroupShard, group: ConsumerGroup, command: Join, reply: Reply, now_ms: int) -> Decision:
    draft = Draft()
    try:
        response = _join(shard, group, command, draft, now_ms)
    except ApiError as error:
        response = rebalance.refuse_join(error.code, "")
    member_id = response.member_id
    draft.answer(reply, response, lambda code: rebalance.refuse_join(code, member_id))
    return draft.decision()


def _join(
    shard: GroupShard, group: ConsumerGroup, command: Join, draft: Draft, now_ms: int
) -> Joined:
    _check_session(shard, command)
    protocols: Protocols = tuple(dict(command.protocols).items())
    _check_protocols(group, command, protocols)
    member_id, instance_id = command.member_id, command.instance_id
    if not member_id and instance_id is None and command.needs_member_id:
        return rebalance.refuse_join(ErrorCode.MEMBER_ID_REQUIRED, shard.fresh_member_id(command.caller.client_id))
    # Decoded only now, because a request for a member id may omit the subscription.
    subscription = read_subscription(protocols[0][1])
    if subscription is None:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    change = ConsumerChange(group)
    member_id, before = _find_joiner(shard, change, command)
    facts = MemberFacts(
        instance_id=instance_id,
        rack_id=subscription.rack_id,
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        topics=tuple(sorted(dict.fromkeys(subscription.topics))),
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        classic=ClassicFacts(command.session_timeout_ms, protocols),
    )
    owned = by_topic_id(shard, {topic.topic: topic.partitions for topic in subscription.owned_partitions})
    position_before = change.group.position(member_id)
    advance_member(shard, change, member_id, before, facts, owned, command.caller.may_describe, draft, now_ms)
    draft.records.extend(change.records)
    joined_in_time(shard, group.group_id, member_id, draft)
    follow_member(shard, change.group, member_id, position_before, draft, now_ms)
    return Joined(
        member_id=member_id,
        generation=change.group.position(member_id).epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
    )


def _check_session(shard: GroupShard, command: Join) -> None:
    if not shard.settings.session_timeout_min_ms <= command.session_timeout_ms <= shard.settings.session_timeout_max_ms:
        raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)


def _check_protocols(group: ConsumerGroup, command: Join, protocols: Protocols) -> None:
    """Raises `ApiError` if the member is not a consumer, or if the classic members would have no common protocol, which a downgrade needs.
    """
    if command.protocol_type != CONSUMER_PROTOCOL_TYPE or not protocols:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    shared: set[str] = set(dict(protocols))
    for member_id, facts in group.facts.items():
        if facts.classic is not None and member_id != command.member_id:
            shared &= dict(facts.classic.protocols).keys()
    if not shared:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _find_joiner(shard: GroupShard, change: ConsumerChange, command: Join) -> tuple[str, MemberFacts | None]:
    """Returns the id that the joining member gets, and the description from its earlier request or instance, if any."""
    group, member_id, instance_id = change.group, command.member_id, command.instance_id
    if instance_id is not None:
        current_id = group.static_members.get(instance_id)
        if current_id is not None and not member_id:
            return _take_place(shard, change, instance_id, current_id)
        if current_id is not None and current_id != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        if current_id is None and member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not member_id:
        member_id = shard.fresh_member_id(instance_id if instance_id is not None else command.caller.client_id)
    facts = group.facts.get(member_id)
    if facts is None and len(group.facts) >= shard.settings.consumer_members_max:
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    return member_id, facts


def _take_place(shard: GroupShard, change: ConsumerChange, instance_id: str, old_id: str) -> tuple[str, MemberFacts]:
    """Gives a static member that joins without its id the assignment of its earlier instance. Returns the new id and the earlier
    description.
    """
    member_id = shard.fresh_member_id(instance_id)
    facts, target, position = change.group.facts[old_id], change.group.target.get(old_id, {}), change.group.position(old_id)
    change.remove_member(old_id)
    change.put_member(member_id, facts)
    change.put_target(member_id, target)
    change.put_position(member_id, ReconciledAssignment.settled(change.group.epoch, 0, position.assigned))
    return member_id, facts


# Downgrade by a replacing static member


def give_way(shard: GroupShard, group: ConsumerGroup, command: Join, draft: Draft) -> bool:
    """Converts the group to a classic group before the member joins, if possible: adds the records to the draft and returns True. A group
    that is empty, or becomes empty because the member replaces its last one, is removed instead."""
    change = ConsumerChange(group)
    if group.facts:
        former = _last_of_the_new(group, command)
        if former is None or not is_downgrade_allowed(shard):
            return False
        remove_members(change, [former])
        if not _fits(shard, change.group, command):
            return False
    if change.group.facts:
        finish_removal(shard, change, draft)
    else:
        change.remove_group()
        draft.records.extend(change.records)
    return True


def _last_of_the_new(group: ConsumerGroup, command: Join) -> str | None:
    """Returns the id of the static member that the joining member replaces, if that is the only member of the new protocol; otherwise None.
    """
    if command.member_id or command.instance_id is None:
        return None
    former = group.static_members.get(command.instance_id)
    of_new_protocol = [member_id for member_id, facts in group.facts.items() if facts.classic is None]
    return former if of_new_protocol == [former] else None


def _fits(shard: GroupShard, group: ConsumerGroup, command: Join) -> bool:
    """Whether the joining member could join the classic group after the conversion."""
    protocols = command.protocols
    try:
        _check_session(shard, command)
        _check_protocols(group, command, protocols)
    except ApiError:
        return False
    if read_subscription(protocols[0][1]) is None:
        return False
    return not group.facts or (may_downgrade(shard, group) and protocol_after_downgrade(group) in dict(protocols))


# Sync and heartbeat


def sync_group(shard: GroupShard, group: ConsumerGroup, command: Sync, reply: Reply, now_ms: int) -> Decision:
    draft = Draft()
    try:
        facts = _check_member(group, command.member_id, command.instance_id, command.generation)
        if command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        assert facts.classic is not None
        if command.protocol_name is not None and command.protocol_name != facts.classic.protocols[0][0]:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        _check_round(shard, group, command.member_id, draft, now_ms)
        extend_session(shard, group.group_id, command.member_id, facts.classic.session_timeout_ms, draft, now_ms)
        assigned = group.position(command.member_id).assigned
        response = Synced(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=facts.classic.protocols[0][0],
            assignment=write_assignment(shard, assigned, facts.classic.protocols[0][1]),
        )
    except ApiError as error:
        response = rebalance.refuse_sync(error.code)
    draft.answer(reply, response, rebalance.refuse_sync)
    return draft.decision()


def heartbeat(shard: GroupShard, group: ConsumerGroup, command: Heartbeat, reply: Reply, now_ms: int) -> Decision:
    draft, code = Draft(), ErrorCode.NONE
    try:
        facts = _check_member(group, command.member_id, command.instance_id, command.generation)
        assert facts.classic is not None
        extend_session(shard, group.group_id, command.member_id, facts.classic.session_timeout_ms, draft, now_ms)
        _check_round(shard, group, command.member_id, draft, now_ms)
        if group.position(command.member_id).state is MemberState.UNREVOKED_PARTITIONS:
            # The member knows from its last answer which partitions to revoke, and joins again to confirm that it has.
            await_join(shard, group, command.member_id, draft)
            code = ErrorCode.REBALANCE_IN_PROGRESS
    except ApiError as error:
        code = error.code
    draft.answer(reply, code, same_code)
    return draft.decision()


def _check_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> MemberFacts:
    facts = _find_classic(group, member_id, instance_id)
    if generation != group.position(member_id).epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return facts


def _find_classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> MemberFacts:
    facts = _find(group, member_id, instance_id)
    if facts.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return facts


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> MemberFacts:
    if instance_id is not None:
        current_id = group.static_members.get(instance_id)
        if current_id is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if current_id != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
    facts = group.facts.get(member_id)
    if facts is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return facts


def _check_round(shard: GroupShard, group: ConsumerGroup, member_id: str, draft: Draft, now_ms: int) -> None:
    """Raises REBALANCE_IN_PROGRESS if the member must join again: its epoch is behind the target's epoch, a new target is due, or a
    partition that it waits for is free. The first two reasons do not apply to a member that revokes partitions, because it joins again
    anyway when it has revoked them.
    """
    position = group.position(member_id)
    is_behind = group.target_epoch > position.epoch or may_assign(shard, group, now_ms)
    is_behind = is_behind and position.state is not MemberState.UNREVOKED_PARTITIONS
    may_have_more = position.state is MemberState.UNRELEASED_PARTITIONS and _has_free(group, member_id, position)
    if is_behind or may_have_more:
        await_join(shard, group, member_id, draft)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)


def _has_free(group: ConsumerGroup, member_id: str, position: ReconciledAssignment) -> bool:
    """Whether a partition that the member waits for has become free."""
    for topic_id, partitions in group.target.get(member_id, {}).items():
        has = position.assigned.get(topic_id, ())
        if any(partition not in has and (topic_id, partition) not in group.owners for partition in partitions):
            return True
    return False


# Leave


def leave_group(shard: GroupShard, group: ConsumerGroup, command: Leave, reply: Reply) -> Decision:
    draft, leaving = Draft(), dict[str, None]()
    members: list[MemberLeft] = []
    for name in command.members:
        code = ErrorCode.NONE
        try:
            leaving[_find_leaver(group, name)] = None
        except ApiError as error:
            code = error.code
        members.append(MemberLeft(name.member_id, name.instance_id, code))
    if leaving:
        change = ConsumerChange(group)
        remove_members(change, leaving)
        finish_removal(shard, change, draft)
    answer = Left(members=members)
    if not draft.records:
        return answered(reply, answer, refuse_leave)
    draft.answer(reply, answer, refuse_leave)
    return draft.decision()


def _find_leaver(group: ConsumerGroup, name: MemberName) -> str:
    """Returns the id of the member to remove. The member may use either protocol; an operator may name a static member by its instance id
    alone.
    """
    if not name.member_id and name.instance_id is not None:
        member_id = group.static_members.get(name.instance_id)
        if member_id is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member_id
    _find(group, name.member_id, name.instance_id)
    return name.member_id
