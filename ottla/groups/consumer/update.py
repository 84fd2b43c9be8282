"""Brings a consumer group's regular expressions, epoch and target assignment up to date, in turns of the loop where that is much work.

An update is a row of steps: expressions are matched with all topics, the topics that members read are looked up, an assignor deals their
partitions, and what differs from the last target is logged. The first `STEPS_AT_ONCE` run within the heartbeat that asks for it, so a group
of a usual size has its new target with the very answer. The rest goes on in fair turns with other work (`GroupShard.later`). Until it is
done heartbeats are answered from the last target, and members get the new one with a later heartbeat, as in Kafka (KIP-1263).

The new target is for the members and the epoch that the group had when the update began to look topics up. A change that comes meanwhile
raises the group's epoch further, so another target follows. What a step has to log (an `Edit`) is decided on the group as it is by then.

Invariants: one update of a group is under way at a time; the target's epoch is logged last, so that after a refusal or a new coordinator,
which leaves some members with a new target and others with the last one, a target is due still, and what members hold decides who may have
a partition (I34).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial

from ottla.base.errors import ApiError
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.base.uuids import Uuid
from ottla.groups.consumer.assignors import ASSIGNORS, MemberSpec
from ottla.groups.consumer.group import REFERENCE_BYTES, ConsumerGroup, MemberFacts, ResolvedRegex
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.epoch_group import Assignment
from ottla.groups.epoch_topics import FoundTopics, find_topics, refresh_of
from ottla.groups.shard import GroupShard
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft

STEPS_AT_ONCE = 30
"""A step takes a fraction of a millisecond, those that log up to two."""
MATCH_WORK_PER_STEP = 30_000
"""Letters of names times instructions of an expression: the dearest take half a millisecond for it, most much less."""
TARGETS_PER_STEP = 25
COMPARED_PER_STEP = 500

MayDescribe = Callable[[str], bool] | None
"""Which topics the member that asks may see; None if all."""
Edit = Callable[[ConsumerChange, int], None]
"""(change of the group, now) -> what a step has to log is in the change."""
Steps = Generator[Edit | None, None, None]
Known = Mapping[str, MemberFacts]
Targets = Sequence[tuple[str, Assignment]]


def may_assign(shard: GroupShard, group: ConsumerGroup, now_ms: int) -> bool:
    """Whether a new target is due and not in the making: the group has moved on, and its last target is old enough that many changes
    become one."""
    if group.epoch <= group.target_epoch or group.group_id in shard.updates:
        return False
    return _has_rested(shard, group, now_ms)


def _has_rested(shard: GroupShard, group: ConsumerGroup, now_ms: int) -> bool:
    return not group.target or group.has_rested(shard.assignment_interval_ms(group.group_id), now_ms)


class GroupUpdate:
    """One update. `patterns` are to be matched anew; `must_look_up`: topics may have changed; `wants_other`: what a member reads has."""

    def __init__(
        self, shard: GroupShard, patterns: list[str], may_describe: MayDescribe, *, must_look_up: bool, wants_other: bool
    ) -> None:
        self._shard = shard
        self._patterns = patterns
        self._may_describe = may_describe
        self._must_look_up = must_look_up or wants_other or bool(patterns)
        self._must_raise_epoch = wants_other
        self._group_id = ""
        self._live: ConsumerGroup | None = None
        """The group itself, once what began the update is logged."""
        self._epoch: int | None = None
        self._is_due = False
        self._steps = self._all_steps()

    def begin(self, change: ConsumerChange, draft: Draft, now_ms: int) -> None:
        """Runs the first steps, or all of them, into `change`; the rest follows when that is logged."""
        self._group_id = change.group_id
        for _ in range(STEPS_AT_ONCE):
            try:
                edit = next(self._steps)
            except StopIteration:
                return
            if edit is not None:
                edit(change, now_ms)
        if self._must_raise_epoch:
            self._raise_epoch(change, change.group.metadata_hash)
        shard = self._shard
        shard.updates[self._group_id] = self
        draft.call(lambda: shard.later(self._rest()))
        draft.on_refusal(lambda _repair, _code: self._give_up())

    def _rest(self) -> Iterator[None]:
        """What `begin` has not done; ends when the group is another one or the coordinator is gone."""
        live = self._shard.groups.get(self._group_id)
        self._live = live if type(live) is ConsumerGroup else None
        for edit in self._steps:
            if not self._is_wanted():
                break
            if edit is not None:
                self._shard.run(partial(self._carry_out, edit))
            yield
        if self._shard.updates.get(self._group_id) is self:
            del self._shard.updates[self._group_id]

    def _is_wanted(self) -> bool:
        shard, group_id = self._shard, self._group_id
        return self._live is not None and shard.updates.get(group_id) is self and shard.groups.get(group_id) is self._live

    def _carry_out(self, edit: Edit, now_ms: int) -> Decision:
        if not self._is_wanted():
            return NOTHING
        assert self._live is not None
        draft, change = Draft(), ConsumerChange(self._live)
        try:
            edit(change, now_ms)
        except ApiError:  # there is no room for what an expression matches
            self._give_up()
            return NOTHING
        draft.records = change.records
        draft.on_refusal(lambda _repair, _code: self._give_up())
        return draft.decision()

    def _give_up(self) -> None:
        """The log has refused something: the next heartbeat begins again."""
        if self._shard.updates.get(self._group_id) is self:
            del self._shard.updates[self._group_id]
            refresh_of(self._shard, self._group_id).topics_version = -1

    # The steps

    def _all_steps(self) -> Steps:
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

    def _match(self, pattern: str) -> Steps:
        try:
            regex = NamePattern(pattern)
        except PatternError:
            return  # a record of another broker; it matches nothing here
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
                return  # its member has gone meanwhile
            self._shard.memory.admit(len(topics) * REFERENCE_BYTES)
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
        """Where nothing else has changed since the update looked, the target will be for the new epoch."""
        is_same = self._epoch == change.group.epoch
        change.put_epoch(change.group.epoch + 1, topics_hash)
        if is_same:
            self._epoch = change.group.epoch
        self._must_raise_epoch = False

    def _make_target(self, group: ConsumerGroup, found: FoundTopics) -> Steps:
        """Makes the target assignment of these members; logs what differs from the last."""
        members = yield from _specs(group, found)
        assign = ASSIGNORS[group.preferred_assignor(self._shard.settings.consumer_assignors)]
        target = yield from assign(members, found.counts)
        changed: list[tuple[str, Assignment]] = []
        for number, (member_id, mine) in enumerate(target.items(), 1):
            if group.target.get(member_id) != mine:
                changed.append((member_id, mine))
            if not number % COMPARED_PER_STEP:
                yield None
        for at in range(0, len(changed), TARGETS_PER_STEP):
            yield partial(self._put_targets, group.facts, changed[at : at + TARGETS_PER_STEP])
        yield self._put_target_epoch

    def _put_targets(self, known: Known, targets: Targets, change: ConsumerChange, _now_ms: int) -> None:
        for member_id, target in targets:
            holder = member_id
            if member_id not in change.group.facts:
                # It has left, or another process has taken its place, which changes no epoch.
                holder = change.group.static_members.get(known[member_id].instance_id or "", "")
            if holder and change.group.target.get(holder) != target:
                change.put_target(holder, target)

    def _put_target_epoch(self, change: ConsumerChange, now_ms: int) -> None:
        assert self._epoch is not None and self._epoch > change.group.target_epoch, "a target of a past epoch"
        change.put_target_epoch(self._epoch, now_ms)


def _specs(group: ConsumerGroup, found: FoundTopics) -> Generator[None, None, list[MemberSpec]]:
    """The members as the assignors know them; those that subscribe to the same share one set of topics."""
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
        if work >= COMPARED_PER_STEP * 5:
            work = 0
            yield
    return members
