"""Removes members of a consumer group that are late with a heartbeat, with revoking partitions, or (classic members) with joining again.

`modern/sessions.py` has the sessions. A member's rebalance timeout limits the time to revoke partitions or to join again. When a late
member is removed, the group's epoch rises, or the group is downgraded (`migration.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.migration import downgrade, may_downgrade
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.consumer.subscriptions import forget_regexes
from ottla.groups.modern import sessions as epoch_sessions
from ottla.groups.modern.reconciling import MemberState
from ottla.groups.shard import GroupShard, Session
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft


def session_timeout_ms(shard: GroupShard, group: ConsumerGroup, member_id: str) -> int:
    facts = group.facts.get(member_id)
    if facts is not None and facts.classic is not None:
        return facts.classic.session_timeout_ms
    timeout_ms: int = shard.setting_of(group.group_id, "consumer.session.timeout.ms")
    return timeout_ms


def extend_session(shard: GroupShard, group_id: str, member_id: str, timeout_ms: int, draft: Draft, now_ms: int) -> Session:
    return epoch_sessions.extend(shard, group_id, member_id, timeout_ms, RULES, draft, now_ms)


def _fence(shard: GroupShard, group: ConsumerGroup, member_id: str, now_ms: int) -> Decision:
    """Removes a late member. If the log refuses the records, starts the member's session again."""
    draft, change = Draft(), ConsumerChange(group)
    remove_members(change, [member_id])
    finish_removal(shard, change, draft)
    draft.on_refusal(
        lambda repair, _code: extend_session(shard, group.group_id, member_id, session_timeout_ms(shard, group, member_id), repair, now_ms)
    )
    return draft.decision()


RULES = epoch_sessions.SessionRules(ConsumerGroup, _fence)


def remove_members(change: ConsumerChange, member_ids: Iterable[str]) -> None:
    """Removes members; the caller then calls `finish_removal`. The members' timers are not cancelled: a timer does nothing if its member is
    removed, and is still needed if the log refuses the records.
    """
    for member_id in member_ids:
        change.remove_member(member_id)
    forget_regexes(change)


def finish_removal(shard: GroupShard, change: ConsumerChange, draft: Draft) -> None:
    """Logs a removal. If only classic members remain, downgrades the group if possible.

    Any other group's epoch rises, so that a later heartbeat of any member distributes the partitions of the removed members.
    """
    if may_downgrade(shard, change.group):
        downgrade(shard, change, draft)
    else:
        change.raise_epoch()
    draft.records.extend(change.records)


# The time of a classic member to join again


def await_join(shard: GroupShard, group: ConsumerGroup, member_id: str, draft: Draft) -> None:
    """Starts the timer for joining again. It ends one rebalance timeout after the first answer that asks the member to join again."""
    group_id, epoch = group.group_id, group.position(member_id).epoch
    session = shard.sessions.get((group_id, member_id))
    if session is None or session.is_join_awaited:
        return
    session.is_join_awaited = True

    def look(now_ms: int) -> Decision:
        live, present = shard.groups.get(group_id), shard.sessions.get((group_id, member_id))
        if type(live) is not ConsumerGroup or present is not session or not session.is_join_awaited:
            return NOTHING
        session.is_join_awaited = False
        if member_id not in live.facts or live.position(member_id).epoch != epoch:
            return NOTHING
        return _fence(shard, live, member_id, now_ms)

    draft.schedule(_join_key(group_id, member_id), max(group.facts[member_id].rebalance_timeout_ms, 0), look)


def joined_in_time(shard: GroupShard, group_id: str, member_id: str, draft: Draft) -> None:
    session = shard.sessions.get((group_id, member_id))
    if session is not None and session.is_join_awaited:
        session.is_join_awaited = False
        draft.cancel(_join_key(group_id, member_id))


def _join_key(group_id: str, member_id: str) -> str:
    return f"rejoin/{group_id}/{member_id}"


def watch_all_members(shard: GroupShard, group: ConsumerGroup, draft: Draft, now_ms: int) -> None:
    """Starts the timers for heartbeats and revocation of all members of a group that was just loaded or upgraded. A classic member's time
    to join again begins with its next heartbeat."""
    for member_id in group.facts:
        extend_session(shard, group.group_id, member_id, session_timeout_ms(shard, group, member_id), draft, now_ms)
        if group.position(member_id).state is MemberState.UNREVOKED_PARTITIONS:
            epoch_sessions.watch_revocation(shard, group, member_id, RULES, draft)
