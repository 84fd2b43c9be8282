"""Removes members of consumer and share groups whose session has timed out.

A session is a deadline in memory with one timer per member, as in classic groups. A heartbeat only moves the deadline, and the timer checks
whether it has passed. `SessionRules` says how each kind of group removes a late member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.groups.modern.group import EpochGroup
from ottla.groups.shard import GroupShard, Session
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft


class SessionRules(NamedTuple):
    """One kind of group: its class, and how a late member is removed."""

    kind: type[EpochGroup[Any, Any]]
    remove: Callable[[GroupShard, Any, str, int], Decision]
    """(shard, group, member id, now) -> the decision that removes the member. If the log refuses it, the session starts again."""


def extend(shard: GroupShard, group_id: str, member_id: str, timeout_ms: int, rules: SessionRules, draft: Draft, now_ms: int) -> Session:
    """Moves the deadline of a member that sent a heartbeat. Starts a timer only if the member has none that ends by the new deadline."""
    session = shard.sessions.get((group_id, member_id))
    if session is None:
        session = shard.sessions[group_id, member_id] = Session()
    session.deadline_ms = now_ms + timeout_ms
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
