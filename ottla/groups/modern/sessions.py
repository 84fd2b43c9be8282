"""Removes members of modern groups whose session has timed out, or who are late with revoking partitions.

A session is a deadline in memory with one timer per member, as in classic groups. A heartbeat moves the deadline, and the timer checks
whether it has passed. `SessionRules` says how each kind of group removes a late member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.groups.modern.group import EpochGroup
from ottla.groups.modern.reconciling import MemberState, ReconciledAssignment, ReconcilingGroup
from ottla.groups.shard import GroupShard, Session
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft


class SessionRules(NamedTuple):
    """One kind of group: its class, and how a late member is removed."""

    kind: type[EpochGroup[Any, Any]]
    remove: Callable[[GroupShard, Any, str, int], Decision]
    """(shard, group, member id, now) -> the decision that removes the member. If the log refuses it, the session starts again."""


def extend(shard: GroupShard, group_id: str, member_id: str, timeout_ms: int, rules: SessionRules, draft: Draft, now_ms: int) -> Session:
    """Moves the deadline of a member that sent a heartbeat. Starts no timer if the member has one that ends at or before the new
    deadline."""
    session = shard.sessions.get((group_id, member_id))
    if session is None:
        session = shard.sessions[group_id, member_id] = Session()
    session.deadline_ms = now_ms + timeout_ms
    draft.on_refusal(lambda _repair, _code: session.forget_connection())
    if session.timer_ms is None or session.timer_ms > session.deadline_ms:
        _watch(shard, group_id, member_id, session, rules, draft, now_ms)
    return session


def _watch(shard: GroupShard, group_id: str, member_id: str, session: Session, rules: SessionRules, draft: Draft, now_ms: int) -> None:
    # Classic sessions use another key, so that the two kinds of timers do not replace each other.
    session.timer_ms = session.deadline_ms
    draft.schedule(
        f"alive/{group_id}/{member_id}", session.deadline_ms - now_ms, lambda now: _expire(shard, group_id, member_id, rules, now)
    )


def _expire(shard: GroupShard, group_id: str, member_id: str, rules: SessionRules, now_ms: int) -> Decision:
    session, group = shard.sessions.get((group_id, member_id)), shard.groups.get(group_id)
    if session is None:
        return NOTHING
    if not isinstance(group, rules.kind) or member_id not in group.facts:
        del shard.sessions[group_id, member_id]
        return NOTHING
    if now_ms < session.deadline_ms:
        draft = Draft()
        _watch(shard, group_id, member_id, session, rules, draft, now_ms)
        return draft.decision()
    session.timer_ms = None
    return rules.remove(shard, group, member_id, now_ms)


# The time to revoke partitions


def follow_revocation(
    shard: GroupShard, group: ReconcilingGroup[Any], member_id: str, before: ReconciledAssignment, rules: SessionRules, draft: Draft
) -> None:
    """Starts or stops the timer of a member that has to revoke partitions. `group` already has the decision's changes."""
    was_revoking = before.state is MemberState.UNREVOKED_PARTITIONS
    is_revoking = group.position(member_id).state is MemberState.UNREVOKED_PARTITIONS
    if is_revoking and not was_revoking:
        watch_revocation(shard, group, member_id, rules, draft)
    elif was_revoking and not is_revoking:
        stop_watching_revocation(group.group_id, member_id, draft)


def watch_revocation(shard: GroupShard, group: ReconcilingGroup[Any], member_id: str, rules: SessionRules, draft: Draft) -> None:
    """Starts the timer: the member's rebalance timeout limits the time to revoke partitions."""
    group_id, epoch = group.group_id, group.position(member_id).epoch
    delay_ms = max(group.facts[member_id].rebalance_timeout_ms, 0)

    def look(now_ms: int) -> Decision:
        live: Any = shard.groups.get(group_id)
        if type(live) is not rules.kind or member_id not in live.facts:
            return NOTHING
        position = live.position(member_id)
        if position.state is not MemberState.UNREVOKED_PARTITIONS or position.epoch != epoch:
            return NOTHING
        return rules.remove(shard, live, member_id, now_ms)

    draft.schedule(_revocation_key(group_id, member_id), delay_ms, look)


def stop_watching_revocation(group_id: str, member_id: str, draft: Draft) -> None:
    draft.cancel(_revocation_key(group_id, member_id))


def _revocation_key(group_id: str, member_id: str) -> str:
    return f"rebalance/{group_id}/{member_id}"
