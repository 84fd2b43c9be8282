"""Removes members of a streams group that quit, send no heartbeat, or are late with revoking tasks. The group's epoch rises, so that other
members get their tasks.
"""

from __future__ import annotations

from ottla.groups.modern import sessions as epoch_sessions
from ottla.groups.modern.reconciling import MemberState
from ottla.groups.shard import GroupShard, Session
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.records import StreamsChange
from ottla.machine.contract import Decision
from ottla.machine.draft import Draft


def extend_streams_session(shard: GroupShard, group_id: str, member_id: str, draft: Draft, now_ms: int) -> Session:
    timeout_ms = shard.setting_of(group_id, "streams.session.timeout.ms")
    return epoch_sessions.extend(shard, group_id, member_id, timeout_ms, RULES, draft, now_ms)


def _remove_late(shard: GroupShard, group: StreamsGroup, member_id: str, now_ms: int) -> Decision:
    draft, change = Draft(), StreamsChange(group)
    remove_streams_member(shard, change, member_id)
    draft.records.extend(change.records)
    draft.on_refusal(lambda repair, _code: extend_streams_session(shard, group.group_id, member_id, repair, now_ms))
    return draft.decision()


RULES = epoch_sessions.SessionRules(StreamsGroup, _remove_late)


def remove_streams_member(shard: GroupShard, change: StreamsChange, member_id: str) -> None:
    """Removes a member. Its timers are not cancelled: they do nothing if the member is removed, and are still needed if the log refuses
    the change.
    """
    change.remove_member(member_id)
    change.raise_epoch()
    if not change.group.facts:
        shard.streams_state(change.group_id).shutdown_by = ""


def watch_streams_members(shard: GroupShard, group: StreamsGroup, draft: Draft, now_ms: int) -> None:
    """Starts the timers of every member of a group that was just loaded."""
    for member_id in group.facts:
        extend_streams_session(shard, group.group_id, member_id, draft, now_ms)
        if group.position(member_id).state is MemberState.UNREVOKED_PARTITIONS:
            epoch_sessions.watch_revocation(shard, group, member_id, RULES, draft)
