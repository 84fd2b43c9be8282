"""Expires offsets, and groups without offsets (KIP-211).

Offsets in topics that the members of a group subscribe to do not expire. If a classic group with members is rebalancing or has unknown
subscriptions, none of its offsets expire. An empty classic group's offsets expire the retention time after its last member left. Other
offsets expire the retention time after their commit: offsets of lone consumers, of empty consumer groups (KIP-848), and of topics that are
no longer subscribed. A commit of an old client may have an expiry time of its own. An empty group without offsets expires too. A share
group exists until it is deleted; the sweep also removes its states of deleted topics, in case the notification was lost.

An offset with a pending transactional commit is skipped (Redpanda #31483). Otherwise the commit could restore an offset that the sweep
removed, or the sweep could remove an offset that was just committed.

Invariants: no offset in use expires (I35). The sweep writes at most `RECORDS_MAX` tombstones of offsets and groups at a time, and continues
in a later iteration of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.groups import records
from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from ottla.groups.kinds import removal
from ottla.groups.modern.reconciling import ReconcilingGroup
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.shard import Group, GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.topics import forget_deleted_topics
from ottla.groups.states import EMPTY, STABLE
from ottla.machine.contract import Decision, LogRecord
from ottla.machine.draft import Draft

RECORDS_MAX = 1_000
SWEEP_KEY = "expiry"

Since = Callable[[str, CommittedOffset], int | None]
"""Returns the start of the retention time of an offset in this topic; None while it must not expire."""


def schedule_sweep(shard: GroupShard, draft: Draft, delay_ms: int | None = None) -> None:
    delay_ms = shard.settings.offsets_retention_check_interval_ms if delay_ms is None else delay_ms
    draft.schedule(SWEEP_KEY, delay_ms, lambda now_ms: sweep(shard, now_ms))


def sweep(shard: GroupShard, now_ms: int) -> Decision:
    draft, logged = Draft(), list[LogRecord]()
    of_share_groups: list[Draft] = []
    for group_id in list(shard.groups):
        group = shard.groups[group_id]
        if type(group) is ShareGroup:
            part = Draft()
            forget_deleted_topics(shard, group, None, part)
            of_share_groups.append(part)
        else:
            _sweep_group(shard, group, now_ms, logged)
        if len(logged) >= RECORDS_MAX:
            draft.separate(logged[:RECORDS_MAX])
            schedule_sweep(shard, draft, 0)
            draft.on_refusal(lambda repair, _code: schedule_sweep(shard, repair))
            return draft.decision()
    draft.separate(logged)
    for part in of_share_groups:
        draft.include(part)
    schedule_sweep(shard, draft)
    return draft.decision()


def _sweep_group(shard: GroupShard, group: Group, now_ms: int, logged: list[LogRecord]) -> None:
    group_id, retention_ms = group.group_id, shard.settings.offsets_retention_ms
    since = _since(group)
    left = 0
    for (topic, partition), committed in shard.offsets.of_group(group_id).items():
        start_ms = since(topic, committed)
        if start_ms is None or shard.offsets.is_pending(group_id, topic, partition):
            left += 1
        elif now_ms >= (committed.expire_timestamp_ms if committed.expire_timestamp_ms >= 0 else start_ms + retention_ms):
            logged.append(records.offset_tombstone(group_id, topic, partition))
        else:
            left += 1
    if left or shard.offsets.pending_count(group_id):
        return
    if isinstance(group, ReconcilingGroup):
        if not group.facts:
            logged += removal(group)
    elif group.state is EMPTY and isinstance(group, ClassicGroup) and not group.pending_members:
        if group.stored is None and not shard.offsets.has_offsets(group_id):
            shard.forget_if_idle(group)
        else:
            logged.append(records.group_tombstone(group_id))


def _since(group: Group) -> Since:
    if isinstance(group, ReconcilingGroup):
        read = frozenset(group.subscribed_topics())
        return lambda topic, committed: None if topic in read else committed.commit_timestamp_ms
    assert isinstance(group, ClassicGroup)
    if group.protocol_type is None:
        return lambda _topic, committed: committed.commit_timestamp_ms
    if group.state is EMPTY:
        empty_since_ms = group.state_since_ms
        return lambda _topic, committed: empty_since_ms if empty_since_ms >= 0 else committed.commit_timestamp_ms
    if group.state is STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.subscribed_topics is not None:
        subscribed = group.subscribed_topics
        return lambda topic, committed: None if topic in subscribed else committed.commit_timestamp_ms
    return lambda _topic, _committed: None
