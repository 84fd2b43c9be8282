"""Updates a consumer group's regular expressions, epoch and target assignment (`modern/update.py`).

Before the target is computed, the expressions are matched with all topics, and the subscribed topics are looked up; both may raise the
group's epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from ottla.base.name_pattern import NamePattern, PatternError
from ottla.base.uuids import Uuid
from ottla.groups.consumer.assignors import ASSIGNORS, MemberSpec
from ottla.groups.consumer.group import REFERENCE_BYTES, ConsumerGroup, MemberFacts, ResolvedRegex
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.modern.topics import FoundTopics, find_topics
from ottla.groups.modern.update import EpochUpdate, Known, Steps
from ottla.groups.shard import GroupShard

MATCH_WORK_PER_STEP = 30_000
"""Limit of the work in one step: the length of the topic names times the number of instructions of the expression. 30,000: half a
millisecond for the slowest expressions.
"""
LOOKED_AT_PER_STEP = 2_500

MayDescribe = Callable[[str], bool] | None
"""Returns whether the requesting member may see a topic. None: the member may see all topics."""


def may_assign(shard: GroupShard, group: ConsumerGroup, now_ms: int) -> bool:
    """Whether a new target must be made now: the group's epoch is newer than the target's, no update is running, and the last target is
    empty or older than the assignment interval. The interval collects several changes in one target.
    """
    if group.epoch <= group.target_epoch or group.group_id in shard.updates:
        return False
    return _has_rested(shard, group, now_ms)


def _has_rested(shard: GroupShard, group: ConsumerGroup, now_ms: int) -> bool:
    return not group.target or group.has_rested(shard.setting_of(group.group_id, "consumer.assignment.interval.ms"), now_ms)


class GroupUpdate(EpochUpdate[ConsumerChange]):
    """One update. `patterns`: expressions to be matched again. `must_look_up`: topics may have changed. `wants_other`: a subscription has
    changed."""

    def __init__(
        self, shard: GroupShard, patterns: list[str], may_describe: MayDescribe, *, must_look_up: bool, wants_other: bool
    ) -> None:
        super().__init__(shard, ConsumerGroup, ConsumerChange)
        self._patterns = patterns
        self._may_describe = may_describe
        self._must_look_up = must_look_up or wants_other or bool(patterns)
        self._must_raise_epoch = wants_other
        self._is_due = False

    def _before_rest(self, change: ConsumerChange) -> None:
        if self._must_raise_epoch:
            self._raise_epoch(change, change.group.metadata_hash)

    def _all_steps(self) -> Steps[ConsumerChange]:
        for pattern in self._patterns:
            yield from self._match(pattern)
        group: ConsumerGroup | None = None

        def look(change: ConsumerChange, now_ms: int) -> None:
            nonlocal group
            group, self._epoch = change.group.copy(), change.group.epoch
            self._note_whether_due(group, now_ms)

        yield look
        assert group is not None
        if not (self._must_look_up or self._is_due):
            return
        found = yield from find_topics(self._shard.topics, group.subscriptions())
        if self._must_look_up:
            yield partial(self._note_topics, found.hash)
        if self._is_due:
            yield from self._make_target(group, found)

    def _match(self, pattern: str) -> Steps[ConsumerChange]:
        try:
            regex = NamePattern(pattern)
        except PatternError:
            return  # another broker has logged an invalid expression; it matches nothing
        version, may_describe = self._shard.topics_version, self._may_describe
        found: list[str] = []
        work = 0
        for name in self._shard.topics.topic_names():
            if regex.matches(name) and (may_describe is None or may_describe(name)):
                found.append(name)
            work += len(name) * regex.size
            if work >= MATCH_WORK_PER_STEP:
                work = 0
                yield None
        yield partial(self._put_regex, pattern, tuple(sorted(found)), version)

    def _put_regex(self, pattern: str, topics: tuple[str, ...], version: int, change: ConsumerChange, now_ms: int) -> None:
        known = change.group.regexes.get(pattern)
        if known is None:
            if pattern not in change.group.used_regexes():
                return  # the member with this expression has quit meanwhile
            self._shard.memory.admit(len(topics) * REFERENCE_BYTES, change.group.owner)
        if known is None or known.topics != topics:
            change.put_regex(pattern, ResolvedRegex(topics, version, now_ms))

    def _note_topics(self, topics_hash: int, change: ConsumerChange, now_ms: int) -> None:
        if self._must_raise_epoch or topics_hash != change.group.metadata_hash:
            self._raise_epoch(change, topics_hash)
        self._note_whether_due(change.group, now_ms)

    def _note_whether_due(self, group: ConsumerGroup, now_ms: int) -> None:
        assert self._epoch is not None
        self._is_due = self._epoch > group.target_epoch and _has_rested(self._shard, group, now_ms)

    def _raise_epoch(self, change: ConsumerChange, topics_hash: int) -> None:
        """Raises the group's epoch. The target gets the new epoch, unless another change has raised the epoch since the update read the
        group.
        """
        is_same = self._epoch == change.group.epoch
        change.put_epoch(change.group.epoch + 1, topics_hash)
        if is_same:
            self._epoch = change.group.epoch
        self._must_raise_epoch = False

    def _make_target(self, group: ConsumerGroup, found: FoundTopics) -> Steps[ConsumerChange]:
        """Computes the target assignment of these members, and logs its differences from the last one."""
        members = yield from _specs(group, found)
        assign = ASSIGNORS[group.preferred_assignor(self._shard.settings.consumer_assignors)]
        target = yield from assign(members, found.counts)
        yield from self._log_target(group, target)

    def _holder(self, change: ConsumerChange, known: Known, member_id: str) -> str:
        if member_id in change.group.facts:
            return member_id
        # The member has left, or another process has replaced it. A replacement does not raise the epoch.
        facts: MemberFacts = known[member_id]
        return change.group.static_members.get(facts.instance_id or "", "")


def _specs(group: ConsumerGroup, found: FoundTopics) -> Generator[None, None, list[MemberSpec]]:
    """Returns the members for an assignor. Members with the same subscription tuple share one set of topics."""
    known: dict[int, tuple[tuple[str, ...], frozenset[Uuid]]] = {}
    members: list[MemberSpec] = []
    work = 0
    for member_id, facts in group.facts.items():
        names = group.topics_of(facts)
        if id(names) not in known:
            ids = map(found.ids.get, names)
            known[id(names)] = names, frozenset(topic_id for topic_id in ids if topic_id is not None)
            work += len(names)
        members.append(MemberSpec(member_id, facts.instance_id, known[id(names)][1], group.target.get(member_id, {})))
        work += 1
        if work >= LOOKED_AT_PER_STEP:
            work = 0
            yield
    return members
