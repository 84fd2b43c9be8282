"""Rebalances a classic group: waits until the members have joined, starts the next generation, and answers each JoinGroup.

A rebalance begins when the membership or a subscription changes, or the leader joins again (`prepare_rebalance`). The group waits until all
known members have sent JoinGroup, at most for the longest rebalance timeout. A group that was empty waits for
`group.initial.rebalance.delay.ms`, and again while new members join. Then (`complete_join`) members that did not join are removed, except
static members, which remain until their session ends. The generation is incremented, a protocol is chosen by vote, and all members are
answered; the leader's answer has all subscriptions. If only static members are left and none has joined, the group waits again. `sync.py`
continues with SyncGroup.

Sessions are deadlines in memory. A heartbeat moves its member's deadline. Each member has at most one timer, which checks the deadline.

Invariants: a JoinGroup is answered exactly once; each completed rebalance increments the generation by one. All of this is soft state,
except for the record of a group that has become empty.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.groups import records
from ottla.groups.answers import Joined, JoinedMember, Synced
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.member import ClassicMember
from ottla.groups.shard import GroupShard
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft

# Answers


def refuse_join(code: ErrorCode, member_id: str = "") -> Joined:
    return Joined(error=code, member_id=member_id)


def refuse_sync(code: ErrorCode) -> Synced:
    return Synced(error=code)


def answer_join(member: ClassicMember, group: ClassicGroup, draft: Draft, answer: Joined) -> None:
    reply = member.join_reply
    if reply is None:
        return
    member.join_reply = None
    group.joining -= 1
    member_id = member.member_id
    draft.answer(reply, answer, lambda code: refuse_join(code, member_id))


def answer_sync(member: ClassicMember, draft: Draft, answer: Synced) -> None:
    reply = member.sync_reply
    if reply is None:
        return
    member.sync_reply = None
    draft.answer(reply, answer, refuse_sync)


def joined(group: ClassicGroup, member_id: str, *, with_members: bool) -> Joined:
    """Returns the answer to a member of the current generation; `with_members` adds all subscriptions, which the leader needs."""
    name, members = group.protocol_name, list[JoinedMember]()
    if with_members:
        members = [JoinedMember(member.member_id, member.instance_id, member.metadata(name)) for member in group.members.values()]
    return Joined(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=name,
        leader_id=group.leader_id or "",
        member_id=member_id,
        members=members,
    )


# Rebalancing


def maybe_rebalance(shard: GroupShard, group: ClassicGroup, draft: Draft, now_ms: int) -> None:
    """Begins a rebalance after a change, or completes the current one if that is possible now."""
    if group.may_rebalance:
        prepare_rebalance(shard, group, draft, now_ms)
    else:
        maybe_complete_join(shard, group, draft, now_ms)


def prepare_rebalance(shard: GroupShard, group: ClassicGroup, draft: Draft, now_ms: int) -> None:
    if group.state is COMPLETING_REBALANCE:
        fail_syncs(shard, group, draft, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
    draft.cancel(_sync_key(group))
    is_initial = group.state is EMPTY
    group.move_to(PREPARING_REBALANCE, now_ms)
    if not is_initial:
        if group.have_all_joined:
            complete_join(shard, group, draft, now_ms)
        else:
            _schedule_completion(shard, group, draft)
        return
    delay_ms = _initial_delay_ms(shard, group)
    if delay_ms <= 0:
        complete_join(shard, group, draft, now_ms)
        return
    group.has_new_member = False
    _schedule_initial(shard, group, draft, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))


def _initial_delay_ms(shard: GroupShard, group: ClassicGroup) -> int:
    """Returns `group.initial.rebalance.delay.ms`. If it is 0 and a member's client sends JoinGroup before it has metadata
    (`ASK_METADATA_LATE` in `join.py`), returns the time that such a client needs to get metadata.
    """
    settings = shard.settings
    if settings.initial_rebalance_delay_ms > 0 or not any(member.asks_metadata_late for member in group.members.values()):
        return settings.initial_rebalance_delay_ms
    return settings.late_metadata_wait_ms


def maybe_complete_join(shard: GroupShard, group: ClassicGroup, draft: Draft, now_ms: int) -> None:
    """Completes the join phase when all members have joined. A group that was empty always waits for its whole delay."""
    if group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY and group.have_all_joined:
        complete_join(shard, group, draft, now_ms)


def complete_join(shard: GroupShard, group: ClassicGroup, draft: Draft, now_ms: int) -> None:
    """Completes the join phase. The members that joined, and the static members that did not, form the next generation."""
    draft.cancel(_join_key(group))
    for member in [member for member in group.members.values() if member.join_reply is None and not member.is_static]:
        drop_member(group, member, draft)
    if group.members and not _elect_joined_leader(group):
        # Only static members are left, and none has joined. Try again after another rebalance timeout, or when all have joined or ended.
        _schedule_completion(shard, group, draft)
        return
    group.generation += 1
    group.pending_syncs.clear()
    if not group.members:
        _become_empty(group, draft, now_ms)
        return
    group.protocol_name = group.select_protocol()
    group.find_subscribed_topics()
    group.move_to(COMPLETING_REBALANCE, now_ms)
    for member in group.members.values():
        answer_join(member, group, draft, joined(group, member.member_id, with_members=member.member_id == group.leader_id))
        member.is_new = False
        group.pending_syncs[member.member_id] = None
        extend_session(shard, group, member, draft, now_ms)
    group_id, generation = group.group_id, group.generation
    draft.schedule(_sync_key(group), group.rebalance_timeout_ms, lambda now: _expire_syncs(shard, group_id, generation, now))


def _become_empty(group: ClassicGroup, draft: Draft, now_ms: int) -> None:
    group.protocol_name = None
    group.leader_id = None
    group.subscribed_topics = frozenset()
    group.move_to(EMPTY, now_ms)
    draft.records.append(records.group_metadata(group.group_id, group.to_record({})))


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """Keeps the leader if it joined, otherwise chooses the first member that did; returns False if no member joined."""
    leader = group.members.get(group.leader_id or "")
    if leader is not None and leader.join_reply is not None:
        return True
    for member in group.members.values():
        if member.join_reply is not None:
            group.leader_id = member.member_id
            return True
    return False


def fail_syncs(shard: GroupShard, group: ClassicGroup, draft: Draft, code: ErrorCode, now_ms: int) -> None:
    """Answers waiting SyncGroups with an error and discards the assignments; the members have to join again."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_reply is not None:
            answer_sync(member, draft, refuse_sync(code))
            extend_session(shard, group, member, draft, now_ms)


def drop_member(group: ClassicGroup, member: ClassicMember, draft: Draft) -> None:
    """Removes a member; its waiting requests are answered with UNKNOWN_MEMBER_ID."""
    answer_join(member, group, draft, refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
    answer_sync(member, draft, refuse_sync(ErrorCode.UNKNOWN_MEMBER_ID))
    if member.timer_ms is not None:
        member.timer_ms = None
        draft.cancel(_session_key(group.group_id, member.member_id))
    group.remove(member)


# Timers


def _join_key(group: ClassicGroup) -> str:
    return f"join/{group.group_id}"


def _sync_key(group: ClassicGroup) -> str:
    return f"sync/{group.group_id}"


def _session_key(group_id: str, member_id: str) -> str:
    return f"session/{group_id}/{member_id}"


def _schedule_initial(shard: GroupShard, group: ClassicGroup, draft: Draft, delay_ms: int, remaining_ms: int) -> None:
    group_id = group.group_id

    def look_again(now_ms: int) -> Decision:
        group = shard.groups.get(group_id)
        if type(group) is not ClassicGroup or group.state is not PREPARING_REBALANCE:
            return NOTHING
        draft = Draft()
        if group.has_new_member and remaining_ms > 0:
            group.has_new_member = False
            delay_next_ms = min(_initial_delay_ms(shard, group), remaining_ms)
            _schedule_initial(shard, group, draft, delay_next_ms, max(remaining_ms - delay_ms, 0))
        else:
            complete_join(shard, group, draft, now_ms)
        return draft.decision()

    draft.schedule(_join_key(group), delay_ms, look_again)


def _schedule_completion(shard: GroupShard, group: ClassicGroup, draft: Draft) -> None:
    group_id = group.group_id

    def complete(now_ms: int) -> Decision:
        group = shard.groups.get(group_id)
        if type(group) is not ClassicGroup or group.state is not PREPARING_REBALANCE:
            return NOTHING
        draft = Draft()
        complete_join(shard, group, draft, now_ms)
        return draft.decision()

    draft.schedule(_join_key(group), group.rebalance_timeout_ms, complete)


def _expire_syncs(shard: GroupShard, group_id: str, generation: int, now_ms: int) -> Decision:
    """Removes members that have sent no SyncGroup within the rebalance timeout, and rebalances, so that other members get their partitions.
    """
    group = shard.groups.get(group_id)
    if type(group) is not ClassicGroup or group.generation != generation or not group.pending_syncs:
        return NOTHING
    if group.state is not COMPLETING_REBALANCE and group.state is not STABLE:
        return NOTHING
    draft = Draft()
    for member_id in list(group.pending_syncs):
        member = group.members.get(member_id)
        if member is not None:
            drop_member(group, member, draft)
    prepare_rebalance(shard, group, draft, now_ms)
    return draft.decision()


def all_synced(group: ClassicGroup, draft: Draft) -> None:
    """Cancels the timer for SyncGroups; called when all members have sent one."""
    draft.cancel(_sync_key(group))


def extend_session(
    shard: GroupShard, group: ClassicGroup, member: ClassicMember, draft: Draft, now_ms: int, timeout_ms: int | None = None
) -> None:
    """Moves the session deadline of a member that sent a request. Starts a timer if the member has none, or if its timer ends after the new
    deadline.
    """
    delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
    member.deadline_ms = now_ms + delay_ms
    if member.timer_ms is None or member.timer_ms > member.deadline_ms:
        _watch_session(shard, group.group_id, member, draft, now_ms)


def _watch_session(shard: GroupShard, group_id: str, member: ClassicMember, draft: Draft, now_ms: int) -> None:
    member.timer_ms = member.deadline_ms
    member_id = member.member_id
    draft.schedule(
        _session_key(group_id, member_id), member.deadline_ms - now_ms, lambda now: _expire_session(shard, group_id, member_id, now)
    )


def _expire_session(shard: GroupShard, group_id: str, member_id: str, now_ms: int) -> Decision:
    group = shard.groups.get(group_id)
    member = group.members.get(member_id) if type(group) is ClassicGroup else None
    if member is None or type(group) is not ClassicGroup:
        return NOTHING
    draft = Draft()
    if now_ms < member.deadline_ms:
        _watch_session(shard, group_id, member, draft, now_ms)
        return draft.decision()
    member.timer_ms = None
    if member.is_waiting and not member.is_new:
        return NOTHING  # a known member that waits is alive; the answer to its request starts the session again
    drop_member(group, member, draft)
    if group.state is not EMPTY:
        maybe_rebalance(shard, group, draft, now_ms)
    return draft.decision()


def watch_members(shard: GroupShard, group: ClassicGroup, draft: Draft, now_ms: int) -> None:
    """Starts the timers of a group that was loaded or downgraded."""
    for member in group.members.values():
        if member.timer_ms is None:
            extend_session(shard, group, member, draft, now_ms)
    if group.state is PREPARING_REBALANCE:
        _schedule_completion(shard, group, draft)


def watch_again(shard: GroupShard, group: ClassicGroup, draft: Draft, now_ms: int) -> None:
    """Starts the group's timers again after the log refused a change that had cancelled them. A group that waits for SyncGroups rebalances.
    """
    for member in group.members.values():
        member.timer_ms = None
        extend_session(shard, group, member, draft, now_ms)
    if group.state is PREPARING_REBALANCE:
        _schedule_completion(shard, group, draft)
    elif group.state is COMPLETING_REBALANCE:
        prepare_rebalance(shard, group, draft, now_ms)


def expect_member(shard: GroupShard, group: ClassicGroup, member_id: str, timeout_ms: int, draft: Draft) -> None:
    """Adds the id that a client got with MEMBER_ID_REQUIRED. The client has one session timeout to join with it."""
    group.pending_members[member_id] = None
    group_id = group.group_id

    def give_up(now_ms: int) -> Decision:
        group = shard.groups.get(group_id)
        if type(group) is not ClassicGroup or member_id not in group.pending_members:
            return NOTHING
        draft = Draft()
        forget_pending(shard, group, member_id, draft, now_ms)
        return draft.decision()

    draft.schedule(_session_key(group_id, member_id), timeout_ms, give_up)


def forget_pending(shard: GroupShard, group: ClassicGroup, member_id: str, draft: Draft, now_ms: int) -> None:
    """Removes an id that no member will use to join. Completes the join phase if it waited only for this id, and removes an idle group."""
    del group.pending_members[member_id]
    draft.cancel(_session_key(group.group_id, member_id))
    maybe_complete_join(shard, group, draft, now_ms)
    shard.forget_if_idle(group)
