"""ShareGroupHeartbeat: a member joins, remains or quits (KIP-932).

A member creates its own id. It sends its subscription when it joins and when the subscription changes; other heartbeats only show that the
member lives. The answer has the member's epoch. It also has the assignment if the assignment changed, if the member sent its subscription,
or if the member uses a new connection. Partitions are shared, so a member gets its new target immediately and waits for no other member.

A partition is assigned after its share coordinator has initialized its state (`topics.py`). If a member without partitions sends its
subscription, the answer waits for the initialization (`JOIN_WAIT_MS`). Otherwise the member would begin to read only with its second
heartbeat, seconds later. After its first member joins, an empty group waits a moment for more members. Otherwise one fetch of the first
member could acquire all records, and consumers that start together would not share them.

Invariants: a heartbeat is accepted with epoch 0 (the member joins), -1 (it leaves), the member's epoch, or the member's previous epoch,
because the answer with the new epoch may be lost. A heartbeat that changes nothing logs nothing.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import Beat, refuse_beat
from ottla.groups.commands import ShareHeartbeat
from ottla.groups.modern.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    admit,
    check_names,
    fenced,
    find_facts,
    merged_topics,
)
from ottla.groups.modern.topics import TopicIds, metadata_hash, must_look_up, refresh_of
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareFacts, ShareGroup, SharePosition
from ottla.groups.share.records import ShareChange
from ottla.groups.share.sessions import extend_share_session, remove_share_member
from ottla.groups.share.topics import initialize, want_states
from ottla.groups.share.update import ShareUpdate
from ottla.machine.contract import NOTHING, Decision, Reply
from ottla.machine.draft import Draft, answered

TOPICS_MAX = 5_000
"""Maximum number of topics that the members of a group subscribe to together."""
JOIN_WAIT_MS = 1_000
"""Limit of one wait before a member without partitions is answered, in milliseconds. There are at most two waits: for the initialization of
states, and for the target assignment. Partitions that are ready later are sent with a later heartbeat.
"""


def share_heartbeat(shard: GroupShard, command: ShareHeartbeat, reply: Reply, now_ms: int) -> Decision:
    reply = shard.claiming(command.group_id, command.caller.owner, reply)
    try:
        _check_request(command)
        check_names(shard.settings, (command.member_id, command.rack_id), command.topics)
        if command.member_epoch == LEAVING_EPOCH:
            return _leave(shard, command, reply)
        return _beat(shard, command, reply, now_ms)
    except ApiError as error:
        return answered(reply, refuse_beat(error.code, error.message), refuse_beat)


def _check_request(command: ShareHeartbeat) -> None:
    def demand(is_right: object, message: str) -> None:
        if not is_right:
            raise ApiError(ErrorCode.INVALID_REQUEST, message)

    demand(command.group_id.strip(), "the group id is empty")
    demand(command.member_id, "the member id is empty")
    demand(command.rack_id != "", "the rack id is empty")
    demand(command.member_epoch >= LEAVING_EPOCH, f"member epoch {command.member_epoch} is not valid")
    if command.member_epoch == JOINING_EPOCH:
        demand(command.topics, "a member that joins must say what it subscribes to")


# Joining and staying


def _beat(shard: GroupShard, command: ShareHeartbeat, reply: Reply, now_ms: int) -> Decision:
    draft, change, member_id = Draft(), _find_group(shard, command), command.member_id
    before = _find_member(shard, change.group, command)
    position_before = change.group.position(member_id)
    facts = _merge(before, command)
    admit(shard.memory, before, facts, shard.owner_of(command.group_id, command.caller.owner))
    _check_width(change.group, before, facts)
    refresh = refresh_of(shard, command.group_id)
    if not change.group.facts:
        refresh.gathers_until_ms = now_ms + shard.settings.share_gathering_ms
    _advance(shard, change, member_id, before, facts, draft, now_ms)
    draft.records.extend(change.records)
    session = extend_share_session(shard, command.group_id, member_id, draft, now_ms)
    position = change.group.position(member_id)
    says_topics = command.topics is not None
    has_moved = session.has_moved(command.caller.connection)
    gathering_ms = max(refresh.gathers_until_ms - now_ms, 0)
    is_early = bool(change.group.state_topics.initializing) or command.group_id in shard.updates
    if says_topics and not position.assigned and (is_early or gathering_ms):
        _await_assignment(shard, command.group_id, member_id, reply, draft, gathering_ms, is_early=is_early)
        return draft.decision()
    is_new = says_topics or has_moved or position.assigned != position_before.assigned
    draft.answer(reply, _answer(shard, command.group_id, member_id, position, has_partitions=is_new), refuse_beat)
    return draft.decision()


def _find_group(shard: GroupShard, command: ShareHeartbeat) -> ShareChange:
    """Returns a change of the existing group, or of a new group if the member joins. Raises `ApiError` GROUP_ID_NOT_FOUND for a group of
    another type, even if it is empty, and for a missing group if the member does not join.
    """
    group = shard.groups.get(command.group_id)
    if type(group) is ShareGroup:
        return ShareChange(group)
    if group is not None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} is not a share group.")
    if command.member_epoch != JOINING_EPOCH:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} not found.")
    return ShareChange(ShareGroup(command.group_id))


def _find_member(shard: GroupShard, group: ShareGroup, command: ShareHeartbeat) -> ShareFacts | None:
    """Returns the member that sent the heartbeat, after all checks; None if it is new."""
    epoch = command.member_epoch
    facts = find_facts(group, command.member_id, epoch, shard.settings.share_members_max)
    position = group.position(command.member_id)
    if facts is not None and epoch not in (JOINING_EPOCH, position.epoch, position.previous_epoch):
        raise fenced(position, epoch)
    return facts


def _check_width(group: ShareGroup, before: ShareFacts | None, facts: ShareFacts) -> None:
    """Raises `ApiError` if the group would subscribe to more than `TOPICS_MAX` topics."""
    if before is None or facts.topics != before.topics:
        read = group.read_topics()
        if len(read) + sum([name not in read for name in facts.topics]) > TOPICS_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the members of a share group subscribe to at most {TOPICS_MAX} different topics")


def _merge(before: ShareFacts | None, command: ShareHeartbeat) -> ShareFacts:
    """Merges a heartbeat into the member's earlier description; null fields keep their earlier values."""
    facts = before if before is not None else ShareFacts()
    return ShareFacts(
        rack_id=command.rack_id if command.rack_id is not None else facts.rack_id,
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        topics=merged_topics(facts.topics, command.topics),
    )


def _advance(
    shard: GroupShard, change: ShareChange, member_id: str, before: ShareFacts | None, facts: ShareFacts, draft: Draft, now_ms: int
) -> None:
    """Processes a heartbeat: the member's description, the group's epoch and target, and the member's current assignment."""
    wants_other = before is None or before.topics != facts.topics
    read_before = change.group.read_topics() if wants_other else None  # passes over members, so not in each heartbeat
    if facts != before:
        change.put_member(member_id, facts)
    may_have_changed = _must_look_up(shard, change.group, now_ms)
    if may_have_changed or wants_other:
        is_beginning, topics_hash = False, change.group.metadata_hash
        if may_have_changed or change.group.read_topics() != read_before:
            is_beginning = want_states(shard, change, must_fit=wants_other)
            topics_hash = metadata_hash(shard, change.group)
        if is_beginning or wants_other or topics_hash != change.group.metadata_hash:
            change.put_epoch(change.group.epoch + 1, topics_hash)
        if is_beginning:
            initialize(shard, change.group, draft)
    if _may_assign(shard, change.group, now_ms):
        ShareUpdate(shard).begin(change, draft, now_ms)
    position = _next_position(shard, change.group, member_id, facts)
    if position is not change.group.position(member_id):
        change.put_position(member_id, position)


def _answer(shard: GroupShard, group_id: str, member_id: str, position: SharePosition, *, has_partitions: bool) -> Beat:
    return Beat(
        member_id=member_id,
        member_epoch=position.epoch,
        heartbeat_interval_ms=shard.setting_of(group_id, "share.heartbeat.interval.ms"),
        assignment=position.assigned if has_partitions else None,
    )


# Topics and targets of the group


def _must_look_up(shard: GroupShard, group: ShareGroup, now_ms: int) -> bool:
    """Whether the caller must look up the topics again, because they may have changed. If so, marks them as looked up."""
    refresh = refresh_of(shard, group.group_id)
    if not must_look_up(shard, refresh, now_ms):
        return False
    refresh.topics_version = shard.topics_version
    return True


def _may_assign(shard: GroupShard, group: ShareGroup, now_ms: int) -> bool:
    """Whether a new target must be made now: immediately if no member has a partition, otherwise after an interval, so that several changes
    lead to one target. While a group waits for more members, it gets no target with partitions.
    """
    if group.epoch <= group.target_epoch or group.group_id in shard.updates:
        return False
    if group.state_topics.initialized and now_ms < refresh_of(shard, group.group_id).gathers_until_ms:
        return False
    return not any(group.target.values()) or group.has_rested(shard.setting_of(group.group_id, "share.assignment.interval.ms"), now_ms)


def _next_position(shard: GroupShard, group: ShareGroup, member_id: str, facts: ShareFacts) -> SharePosition:
    """Returns the member's current assignment after this heartbeat; the same object if nothing changes."""
    position, target = group.position(member_id), group.target.get(member_id, {})
    if group.target_epoch < group.epoch:
        # The target is older than the last change: remove topics that the member no longer subscribes to.
        wanted = TopicIds(shard).of(facts.topics)
        target = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}
    if position.epoch == group.target_epoch:
        return position if position.assigned == target else SharePosition(position.epoch, position.previous_epoch, dict(target))
    return SharePosition(group.target_epoch, position.epoch, dict(target))


# Waiting for other members and for partitions to become ready


def _await_assignment(
    shard: GroupShard,
    group_id: str,
    member_id: str,
    reply: Reply,
    draft: Draft,
    gathering_ms: int,
    *,
    is_early: bool,
    is_second: bool = False,
) -> None:
    """Delays the answer to a joining member for `gathering_ms`. `is_early`: states are still being initialized, or the target is being
    computed. The answer then first waits for the end of this work, at most `JOIN_WAIT_MS`.
    """
    deferred = shard.deferred.defer("share-join", reply, refuse_beat, draft)

    def settle(now_ms: int) -> Decision:
        shard.forget_joiner(group_id, deferred)
        return _answer_joiner(shard, group_id, member_id, reply, now_ms, may_wait=not is_second) if deferred.take() else NOTHING

    if is_early:
        shard.add_joiner(group_id, deferred, lambda later: later.schedule(deferred.key, gathering_ms, settle))
        draft.on_refusal(lambda _repair, _code: shard.forget_joiner(group_id, deferred))
    draft.schedule(deferred.key, JOIN_WAIT_MS if is_early else gathering_ms, settle)


def _answer_joiner(shard: GroupShard, group_id: str, member_id: str, reply: Reply, now_ms: int, *, may_wait: bool) -> Decision:
    group = shard.groups.get(group_id)
    facts = group.facts.get(member_id) if type(group) is ShareGroup else None
    if facts is None or type(group) is not ShareGroup:
        return answered(reply, refuse_beat(ErrorCode.UNKNOWN_MEMBER_ID), refuse_beat)
    draft, change = Draft(), ShareChange(group)
    _advance(shard, change, member_id, facts, facts, draft, now_ms)
    draft.records.extend(change.records)
    position = change.group.position(member_id)
    if may_wait and not position.assigned and group_id in shard.updates:
        _await_assignment(shard, group_id, member_id, reply, draft, 0, is_early=True, is_second=True)
    else:
        draft.answer(reply, _answer(shard, group_id, member_id, position, has_partitions=True), refuse_beat)
    return draft.decision()


# Leaving


def _leave(shard: GroupShard, command: ShareHeartbeat, reply: Reply) -> Decision:
    change = _find_group(shard, command)
    if command.member_id not in change.group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {command.member_id} is not in the group")
    draft = Draft()
    remove_share_member(change, command.member_id)
    draft.records.extend(change.records)
    draft.answer(reply, Beat(member_id=command.member_id, member_epoch=LEAVING_EPOCH), refuse_beat)
    return draft.decision()
