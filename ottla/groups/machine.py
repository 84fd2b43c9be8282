"""The group coordinator of one partition of `__consumer_offsets`, as a state machine over the partition's log (`machine/contract.py`).

The functions in `classic_requests.py`, `consumer/`, `share/`, `streams/`, `offsets/` and `admin.py` decide requests on the machine's shard.
`apply` applies one record to the shard, `apply_marker` the marker of a client's transaction, and `resume` starts the timers of the groups
found in the log.

Invariants: only `apply` and `apply_marker` change hard state; the same log gives the same hard state on every broker (P9, I36). Unreadable
records change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.ports import Random
from ottla.base.share_state import Persister
from ottla.groups import records
from ottla.groups.classic import rebalance
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.sessions import watch_all_members
from ottla.groups.kinds import KINDS, EpochKind
from ottla.groups.offsets import delete, expiry
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.settings import GroupCoordinatorSettings, OwnSettings, TopicsView, no_overrides
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.no_states import NO_SHARE_STATES
from ottla.groups.share.sessions import watch_share_members
from ottla.groups.share.topics import forget_deleted_topics, resume_share_states
from ottla.groups.states import ALLOWED, DEAD
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.sessions import watch_streams_members
from ottla.machine.contract import Decision, Effect, LogRecord, RunDecision, Transactional, run_nothing
from ottla.machine.draft import Draft
from ottla.machine.memory import CoordinatorMemory
from ottla.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


class GroupMachine:
    """`machine.contract.Machine` for all kinds of groups."""

    def __init__(
        self,
        settings: GroupCoordinatorSettings,
        topics: TopicsView,
        random: Random,
        own_settings: OwnSettings = no_overrides,
        persister: Persister = NO_SHARE_STATES,
        memory: CoordinatorMemory | None = None,
        offset_memory: CoordinatorMemory | None = None,
    ) -> None:
        self.shard = GroupShard(
            settings, topics, random, own_settings, persister, memory or CoordinatorMemory(), offset_memory or CoordinatorMemory()
        )
        self._folds: dict[Any, Callable[[int, Any, Any, Transactional | None], None]] = {
            OffsetCommitKey: self._apply_offset,
            GroupMetadataKey: self._apply_group,
            **{key: partial(self._apply_epochs, kind) for kind in KINDS.values() for key in kind.keys},
        }

    # The life of a shard (`machine/coordinator.py`)

    def begin(self, run: RunDecision) -> None:
        self.shard.run = run

    def end(self) -> None:
        self.shard.memory.end()
        self.shard.offset_memory.end()
        self.shard.run = run_nothing

    def configure(self, settings: GroupCoordinatorSettings) -> None:
        self.shard.settings = settings

    # Topics

    def topics_changed(self) -> None:
        """Called when a topic was created, deleted or extended. Groups look up their topics again at their members' next heartbeat."""
        self.shard.topics_version += 1

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Records deleted topics for `forget_topics`. If the log is loading, `resume` handles them."""
        self.shard.deleted_topics.update(dict.fromkeys(names))

    def forget_topics(self, _now_ms: int) -> Decision:
        """Removes committed offsets and share states of deleted topics. It is called again until the log accepts the change."""
        draft = Draft()
        self._forget_topics(draft)
        return draft.decision()

    def _forget_topics(self, draft: Draft) -> None:
        gone = frozenset(self.shard.deleted_topics)
        if not gone:
            return
        delete.forget_topics(self.shard, draft)
        for group in self.shard.groups.values():
            if type(group) is ShareGroup:
                part = Draft()
                forget_deleted_topics(self.shard, group, gone, part)
                draft.include(part)
        draft.on_refusal(lambda repair, _code: repair.schedule("forget-topics", delete.FORGET_RETRY_MS, self.forget_topics))

    # Applying the log

    def apply(self, offset: int, record: LogRecord, transactional: Transactional | None) -> None:
        if type(record) is records.OffsetCommitRecord:
            self._apply_offset(offset, record.decoded_key, record.decoded_value, transactional)
            return
        key = records.read_key(record.key)
        fold = self._folds.get(type(key))
        if key is None or fold is None:
            return
        value = None
        if record.value is not None:
            value = records.read_value(key, record.value)
            if value is None:
                return  # a damaged value, or one of a later version
        fold(offset, key, value, transactional)

    def _apply_offset(
        self, offset: int, key: OffsetCommitKey, value: OffsetCommitValue | None, transactional: Transactional | None
    ) -> None:
        shard, position = self.shard, (key.topic, key.partition)
        if value is None:
            shard.offsets.remove(key.group, position)
            return
        if key.group not in shard.groups:
            shard.groups[key.group] = ClassicGroup(key.group)
        committed = CommittedOffset(
            value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, value.topic_id, offset
        )
        if transactional is None:
            shard.offsets.put(key.group, position, committed)
        else:
            shard.offsets.put_pending(transactional.producer_id, key.group, position, committed)

    def _apply_group(
        self, _offset: int, key: GroupMetadataKey, value: GroupMetadataValue | None, _transactional: Transactional | None
    ) -> None:
        groups = self.shard.groups
        group = groups.get(key.group)
        if value is None:
            if type(group) is ClassicGroup:
                assert DEAD in ALLOWED[group.state]
                del groups[key.group]
        elif self.shard.is_live and type(group) is ClassicGroup and group.generation == value.generation:
            group.apply_record(value)
        else:
            # The log is loading, or the record converts a consumer group to a classic group.
            groups[key.group] = ClassicGroup.from_record(key.group, value)

    def _apply_epochs(
        self, kind: EpochKind, _offset: int, key: Any, value: Any, _transactional: Transactional | None
    ) -> None:
        groups = self.shard.groups
        group = groups.get(key.group_id)
        if type(group) is not kind.group:
            if value is None:
                return
            group = groups[key.group_id] = kind.group(key.group_id)
        if value is None and type(key) is kind.schema.group_key:
            self.shard.forget_group(key.group_id)
        else:
            kind.fold(group, key, value)
        if value is None and type(key) is kind.schema.member_key:
            self.shard.sessions.pop((key.group_id, key.member_id), None)  # the session's timer then does nothing
            state = self.shard.streams_states.get(key.group_id)
            if state is not None:
                state.offsets.pop(key.member_id, None)

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.shard.offsets.end_transaction(producer_id, is_commit)

    def follow_up(self, now_ms: int) -> Decision:
        """Called after a marker: logs the transaction's offsets again if a plain commit of the same key is later in the log, because
        compaction would keep only the plain commit."""
        draft = Draft()
        delete.rewrite_overtaken(self.shard, draft)
        return draft.decision()

    def resume(self, now_ms: int) -> Decision:
        """Starts the timers, and continues work on share states, rewrites and deleted topics. Members found in the log have one session
        timeout to send a heartbeat.
        """
        self.shard.is_live = True
        self.shard.memory.count()
        self.shard.offset_memory.count()
        draft = Draft()
        for group in self.shard.groups.values():
            if type(group) is ClassicGroup:
                rebalance.watch_members(self.shard, group, draft, now_ms)
            elif isinstance(group, ConsumerGroup):
                watch_all_members(self.shard, group, draft, now_ms)
            elif isinstance(group, ShareGroup):
                watch_share_members(self.shard, group, draft, now_ms)
                resume_share_states(self.shard, group, draft)
            elif isinstance(group, StreamsGroup):
                watch_streams_members(self.shard, group, draft, now_ms)
        expiry.schedule_sweep(self.shard, draft)
        logged, draft.records = draft.records, []
        delete.rewrite_overtaken(self.shard, draft)
        draft.separate(logged)
        self._forget_topics(draft)
        return draft.decision()

    def abandon(self, code: ErrorCode) -> Sequence[Effect]:
        """Answers all callers that wait in a rebalance or for a later decision with `code`, because the leadership is lost."""
        self.shard.is_over = True
        self.shard.updates.clear()
        draft = Draft()
        for group in self.shard.groups.values():
            if type(group) is ClassicGroup:
                for member in group.members.values():
                    rebalance.answer_join(member, group, draft, rebalance.refuse_join(code, member.member_id))
                    rebalance.answer_sync(member, draft, rebalance.refuse_sync(code))
        return [*draft.effects(), *self.shard.deferred.abandon(code)]
