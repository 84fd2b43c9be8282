"""What does ShareGroupHeartbeat do: join, stay, leave (KIP-932)?

A member makes its own id, says what it wants to read when it joins or when that changes, and else only that it lives. The answer has the
member's epoch and, when that changed, the partitions that it may ask records of. Partitions are shared, so a member has its new target at
once; nobody waits until somebody else has let go.

A partition is assigned once its share coordinator has begun to remember what becomes of its records (`topics.py`). The answer to a member
that joins, or wants to read other topics, waits a moment for that, so that a reader starts with its first heartbeat and not with its
second, which comes seconds later. A group that was empty gathers members for a moment first, so that those that are started together
share what there is to read: one fetch of the first could lock all of it.

Invariants: an epoch that is not the member's own is refused, save the last one, when the answer with the new one was lost; a heartbeat
that changes nothing logs nothing and costs the same in a group of any size.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import Uuid
from ottla.groups.consumer.assignors import Assignment
from ottla.groups.consumer.subscriptions import LOOK_AGAIN_MS, metadata_hash
from ottla.groups.draft import Caller, Draft, answered
from ottla.groups.shard import GroupShard, Refresh
from ottla.groups.share.assignor import SHARE_ASSIGNORS, ShareMember
from ottla.groups.share.group import ShareFacts, ShareGroup, SharePosition
from ottla.groups.share.records import ShareChange
from ottla.groups.share.sessions import extend_share_session, remove_share_member
from ottla.groups.share.topics import initialize, want_states
from ottla.machine.contract import NOTHING, Answer, Decision, Effect, Reply
from ottla.wire.messages.share_group_heartbeat import (
    Assignment as WireAssignment,
)
from ottla.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
JOIN_WAIT_MS = 1_000
"""How long a member that has nothing to read waits for partitions to become ready; what is not ready then comes with a later heartbeat."""


def share_refusal(code: ErrorCode, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message or None)


def share_heartbeat(shard: GroupShard, request: ShareGroupHeartbeatRequest, caller: Caller, reply: Reply, now_ms: int) -> Decision:
    try:
        _check_request(request)
        if request.member_epoch == LEAVING_EPOCH:
            return _leave(shard, request, reply)
        return _beat(shard, request, caller, reply, now_ms)
    except ApiError as error:
        return answered(reply, share_refusal(error.code, error.message), share_refusal)


def _check_request(request: ShareGroupHeartbeatRequest) -> None:
    def demand(is_right: object, message: str) -> None:
        if not is_right:
            raise ApiError(ErrorCode.INVALID_REQUEST, message)

    demand(request.group_id, "the group id is empty")
    demand(request.member_id, "the member id is empty")
    demand(request.rack_id != "", "the rack id is empty")
    demand(request.member_epoch >= LEAVING_EPOCH, f"member epoch {request.member_epoch} is not valid")
    if request.member_epoch == JOINING_EPOCH:
        demand(request.subscribed_topic_names, "a member that joins must say what it subscribes to")


# Joining and staying


def _beat(shard: GroupShard, request: ShareGroupHeartbeatRequest, caller: Caller, reply: Reply, now_ms: int) -> Decision:
    draft, change, member_id = Draft(), _find_group(shard, request), request.member_id
    before = _find_member(shard, change.group, request)
    position_before = change.group.position(member_id)
    facts = _merge(before, request, caller)
    refresh = _refresh_of(shard, request.group_id)
    if not change.group.facts:
        refresh.gathers_until_ms = now_ms + shard.settings.share_gathering_ms
    _advance(shard, change, member_id, before, facts, draft, now_ms)
    draft.records.extend(change.records)
    extend_share_session(shard, request.group_id, member_id, draft, now_ms)
    position = change.group.position(member_id)
    says_topics = request.subscribed_topic_names is not None
    has_moved = shard.share_sessions[request.group_id, member_id].has_moved(caller.connection)
    gathering_ms = max(refresh.gathers_until_ms - now_ms, 0)
    is_early = bool(change.group.state_topics.initializing)
    if says_topics and not position.assigned and (is_early or gathering_ms):
        _await_assignment(shard, request.group_id, member_id, reply, draft, gathering_ms, is_early=is_early)
        return draft.decision()
    is_new = says_topics or has_moved or position.assigned != position_before.assigned
    draft.answer(reply, _response(shard, request.group_id, member_id, position, has_partitions=is_new), share_refusal)
    return draft.decision()


def _find_group(shard: GroupShard, request: ShareGroupHeartbeatRequest) -> ShareChange:
    """The group; a new one when the member joins. A group of another kind does not give way, not even an empty one."""
    group = shard.groups.get(request.group_id)
    if type(group) is ShareGroup:
        return ShareChange(group)
    if group is not None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
    if request.member_epoch != JOINING_EPOCH:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    return ShareChange(ShareGroup(request.group_id))


def _find_member(shard: GroupShard, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareFacts | None:
    """What is known of the member that speaks, after all checks; None if it is new."""
    member_id, epoch = request.member_id, request.member_epoch
    facts = group.facts.get(member_id)
    if facts is None:
        if epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
        if len(group.facts) >= shard.settings.share_members_max:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(group.facts)} members already")
        return None
    position = group.position(member_id)
    if epoch not in (JOINING_EPOCH, position.epoch, position.previous_epoch):
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {epoch} is not the member's epoch {position.epoch}; it must join again")
    return facts


def _merge(before: ShareFacts | None, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareFacts:
    """What the member says now, over what it said before; a field that is null is as before."""
    facts = before if before is not None else ShareFacts()
    names = request.subscribed_topic_names
    return ShareFacts(
        rack_id=request.rack_id if request.rack_id is not None else facts.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=facts.topics if names is None else tuple(sorted(dict.fromkeys(names))),
    )


def _advance(
    shard: GroupShard, change: ShareChange, member_id: str, before: ShareFacts | None, facts: ShareFacts, draft: Draft, now_ms: int
) -> None:
    """One member's step: its facts, the group's epoch and target, its own position."""
    wants_other = before is None or before.topics != facts.topics
    if facts != before:
        change.put_member(member_id, facts)
    if _must_look_up(shard, change.group, now_ms) or wants_other:
        if want_states(shard, change):
            initialize(shard, change.group.group_id, draft)
        topics_hash = metadata_hash(shard, change.group)
        if wants_other or topics_hash != change.group.metadata_hash:
            change.put_epoch(change.group.epoch + 1, topics_hash)
    if _may_assign(shard, change.group, now_ms):
        _update_target(shard, change, now_ms)
    position = _next_position(shard, change.group, member_id, facts)
    if position is not change.group.position(member_id):
        change.put_position(member_id, position)


def _response(
    shard: GroupShard, group_id: str, member_id: str, position: SharePosition, *, has_partitions: bool
) -> ShareGroupHeartbeatResponse:
    response = ShareGroupHeartbeatResponse(
        member_id=member_id, member_epoch=position.epoch, heartbeat_interval_ms=shard.share_heartbeat_interval_ms(group_id)
    )
    if has_partitions:
        response.assignment = WireAssignment(
            topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=list(share)) for topic_id, share in position.assigned.items()]
        )
    return response


# What the group reads


def _must_look_up(shard: GroupShard, group: ShareGroup, now_ms: int) -> bool:
    """Whether topics may have changed since the group last looked."""
    refresh = _refresh_of(shard, group.group_id)
    if refresh.topics_version == shard.topics_version and now_ms - refresh.looked_at_ms < LOOK_AGAIN_MS:
        return False
    refresh.looked_at_ms, refresh.topics_version = now_ms, shard.topics_version
    return True


def _refresh_of(shard: GroupShard, group_id: str) -> Refresh:
    refresh = shard.refreshes.get(group_id)
    if refresh is None:
        refresh = shard.refreshes[group_id] = Refresh()
    return refresh


def _may_assign(shard: GroupShard, group: ShareGroup, now_ms: int) -> bool:
    """Whether a new target is due: at once if no member has a partition, else many changes become one. While a group gathers its first
    members nothing is given out."""
    if group.epoch <= group.target_epoch:
        return False
    if group.state_topics.initialized and now_ms < _refresh_of(shard, group.group_id).gathers_until_ms:
        return False
    return not any(group.target.values()) or now_ms - group.target_timestamp_ms >= shard.share_assignment_interval_ms(group.group_id)


def _update_target(shard: GroupShard, change: ShareChange, now_ms: int) -> None:
    """Makes the target assignment of the group's present epoch; logs what differs from the last."""
    group, ids = change.group, _Ids(shard)
    members = [ShareMember(member_id, ids.of(facts.topics), group.target.get(member_id, {})) for member_id, facts in group.facts.items()]
    ready = {topic_id: share.partitions for topic_id, share in group.state_topics.initialized.items()}
    assign = SHARE_ASSIGNORS[shard.settings.share_assignors[0]]
    for member_id, target in assign(members, ready).items():
        if change.group.target.get(member_id) != target:
            change.put_target(member_id, target)
    change.put_target_epoch(change.group.epoch, now_ms)


class _Ids:
    """The ids of subscriptions' topics; members that subscribe to the same share one set."""

    def __init__(self, shard: GroupShard) -> None:
        self._topics = shard.topics
        self._known: dict[tuple[str, ...], frozenset[Uuid]] = {}

    def of(self, names: tuple[str, ...]) -> frozenset[Uuid]:
        found = self._known.get(names)
        if found is None:
            ids = (self._topics.topic_id(name) for name in names)
            found = self._known[names] = frozenset(topic_id for topic_id in ids if topic_id is not None)
        return found


def _next_position(shard: GroupShard, group: ShareGroup, member_id: str, facts: ShareFacts) -> SharePosition:
    """The member's new position; the one it has, the very object, if it does not move."""
    position, target = group.position(member_id), group.target.get(member_id, {})
    if group.target_epoch < group.epoch:
        # The target is of before the last change: what the member does not want any more is out of it at once.
        wanted = _Ids(shard).of(facts.topics)
        target = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}
    if position.epoch == group.target_epoch:
        return position if position.assigned == target else SharePosition(position.epoch, position.previous_epoch, _copy(target))
    return SharePosition(group.target_epoch, position.epoch, _copy(target))


def _copy(target: Assignment) -> Assignment:
    return dict(target)


# Waiting for other members and for partitions to become ready


def _await_assignment(
    shard: GroupShard, group_id: str, member_id: str, reply: Reply, draft: Draft, gathering_ms: int, *, is_early: bool
) -> None:
    """The member is in; its answer comes when the group has gathered its first members and the share coordinators have answered, but for
    these (`is_early`) it waits only a moment."""
    deferred, key = shard.deferred, f"share-join/{group_id}/{member_id}/{shard.random.token_bytes(8).hex()}"

    def refused(code: ErrorCode) -> Effect:
        deferred.pop(key, None)
        return Answer(reply, share_refusal(code))

    def settle(now_ms: int) -> Decision:
        return NOTHING if deferred.pop(key, None) is None else _answer_joiner(shard, group_id, member_id, reply, now_ms)

    def undo(repair: Draft, code: ErrorCode) -> None:
        deferred.pop(key, None)
        repair.cancel(key)
        repair.answer(reply, share_refusal(code), share_refusal)

    deferred[key] = refused
    if is_early:
        shard.add_joiner(group_id, lambda later: later.schedule(key, gathering_ms, settle))
    draft.schedule(key, JOIN_WAIT_MS if is_early else gathering_ms, settle)
    draft.on_refusal(undo)


def _answer_joiner(shard: GroupShard, group_id: str, member_id: str, reply: Reply, now_ms: int) -> Decision:
    group = shard.groups.get(group_id)
    facts = group.facts.get(member_id) if type(group) is ShareGroup else None
    if facts is None or type(group) is not ShareGroup:
        return answered(reply, share_refusal(ErrorCode.UNKNOWN_MEMBER_ID), share_refusal)
    draft, change = Draft(), ShareChange(group)
    _advance(shard, change, member_id, facts, facts, draft, now_ms)
    draft.records.extend(change.records)
    position = change.group.position(member_id)
    draft.answer(reply, _response(shard, group_id, member_id, position, has_partitions=True), share_refusal)
    return draft.decision()


# Leaving


def _leave(shard: GroupShard, request: ShareGroupHeartbeatRequest, reply: Reply) -> Decision:
    change = _find_group(shard, request)
    if request.member_id not in change.group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {request.member_id} is not in the group")
    draft = Draft()
    remove_share_member(change, request.member_id)
    draft.records.extend(change.records)
    draft.answer(reply, ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVING_EPOCH), share_refusal)
    return draft.decision()
