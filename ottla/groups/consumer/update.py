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
from ottla.groups.consumer.group import REFERENCE_BYTES, ConsumerGroup, ResolvedRegex
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.modern.topics import FoundTopics
from ottla.groups.modern.update import ReconcilingUpdate, Steps
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


class GroupUpdate(ReconcilingUpdate[ConsumerChange]):
    """One update. `patterns`: expressions to be matched again."""

    def __init__(
        self, shard: GroupShard, patterns: list[str], may_describe: MayDescribe, *, must_look_up: bool, wants_other: bool
    ) -> None:
        must_look_up = must_look_up or bool(patterns)
        super().__init__(shard, ConsumerGroup, ConsumerChange, must_look_up=must_look_up, wants_other=wants_other)
        self._patterns = patterns
        self._may_describe = may_describe

    def _first_steps(self) -> Steps[ConsumerChange]:
        for pattern in self._patterns:
            yield from self._match(pattern)

    def _match(self, pattern: str) -> Steps[ConsumerChange]:
        try:
            regex = NamePattern(pattern)
        except PatternError:
            return  # another broker has accepted this expression; the topics that it logged for the expression remain
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

    def _has_rested(self, group: ConsumerGroup, now_ms: int) -> bool:
        return _has_rested(self._shard, group, now_ms)

    def _make_target(self, group: ConsumerGroup, found: FoundTopics) -> Steps[ConsumerChange]:
        members = yield from _specs(group, found)
        assign = ASSIGNORS[group.preferred_assignor(self._shard.settings.consumer_assignors)]
        target = yield from assign(members, found.counts)
        yield from self._log_target(group, target)


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
