"""How long may a member of a share group be silent? Deadlines in memory with one timer a member, as in consumer groups.

Whoever is late is removed, and the group's epoch rises, so that the next heartbeat of anybody spreads what it had.
"""

from __future__ import annotations

from ottla.groups.draft import Draft
from ottla.groups.shard import GroupShard, Session
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.records import ShareChange
from ottla.machine.contract import NOTHING, Decision


def extend_share_session(shard: GroupShard, group_id: str, member_id: str, draft: Draft, now_ms: int) -> None:
    session = shard.share_sessions.get((group_id, member_id))
    if session is None:
        session = shard.share_sessions[group_id, member_id] = Session()
    session.deadline_ms = now_ms + shard.share_session_timeout_ms(group_id)
    if session.timer_ms is None or session.timer_ms > session.deadline_ms:
        _watch(shard, group_id, member_id, session, draft, now_ms)


def _watch(shard: GroupShard, group_id: str, member_id: str, session: Session, draft: Draft, now_ms: int) -> None:
    session.timer_ms = session.deadline_ms
    draft.schedule(
        f"share-alive/{group_id}/{member_id}", session.deadline_ms - now_ms, lambda now: _expire_session(shard, group_id, member_id, now)
    )


def _expire_session(shard: GroupShard, group_id: str, member_id: str, now_ms: int) -> Decision:
    session, group = shard.share_sessions.get((group_id, member_id)), shard.groups.get(group_id)
    if session is None:
        return NOTHING
    if type(group) is not ShareGroup or member_id not in group.facts:
        del shard.share_sessions[group_id, member_id]
        return NOTHING
    draft = Draft()
    if now_ms < session.deadline_ms:
        _watch(shard, group_id, member_id, session, draft, now_ms)
        return draft.decision()
    session.timer_ms = None
    change = ShareChange(group)
    remove_share_member(change, member_id)
    draft.records.extend(change.records)
    draft.on_refusal(lambda repair, _code: extend_share_session(shard, group_id, member_id, repair, now_ms))
    return draft.decision()


def remove_share_member(change: ShareChange, member_id: str) -> None:
    """Its timer stays and will find nobody, so a refusal need not make it anew."""
    change.remove_member(member_id)
    change.raise_epoch()


def watch_share_members(shard: GroupShard, group: ShareGroup, draft: Draft, now_ms: int) -> None:
    """The group was just loaded: every member has one session's time to be heard of."""
    for member_id in group.facts:
        extend_share_session(shard, group.group_id, member_id, draft, now_ms)
