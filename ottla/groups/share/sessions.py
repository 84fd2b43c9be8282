"""Removes members of a share group that quit or send no heartbeat. The group's epoch rises, so that other members get their partitions."""

from __future__ import annotations

from ottla.groups.modern import sessions as epoch_sessions
from ottla.groups.shard import GroupShard, Session
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.records import ShareChange
from ottla.machine.contract import Decision
from ottla.machine.draft import Draft


def extend_share_session(shard: GroupShard, group_id: str, member_id: str, draft: Draft, now_ms: int) -> Session:
    return epoch_sessions.extend(shard, group_id, member_id, shard.setting_of(group_id, "share.session.timeout.ms"), RULES, draft, now_ms)


def _remove_late(shard: GroupShard, group: ShareGroup, member_id: str, now_ms: int) -> Decision:
    draft, change = Draft(), ShareChange(group)
    remove_share_member(change, member_id)
    draft.records.extend(change.records)
    draft.on_refusal(lambda repair, _code: extend_share_session(shard, group.group_id, member_id, repair, now_ms))
    return draft.decision()


RULES = epoch_sessions.SessionRules(ShareGroup, _remove_late)


def remove_share_member(change: ShareChange, member_id: str) -> None:
    """Removes a member. The session timer is not cancelled: it does nothing if the member is removed, and is still needed if the log
    refuses the change.
    """
    change.remove_member(member_id)
    change.raise_epoch()


def watch_share_members(shard: GroupShard, group: ShareGroup, draft: Draft, now_ms: int) -> None:
    """Starts the session of every member of a group that was just loaded."""
    for member_id in group.facts:
        extend_share_session(shard, group.group_id, member_id, draft, now_ms)
