"""Brings the target assignment of a consumer or share group up to date, in turns of the loop where that is much work.

An update is a row of steps: what members read is looked up, an assignor deals the partitions, and what differs from the last target is
logged. The first `STEPS_AT_ONCE` run within the heartbeat that asks for it, so a group of a usual size has its new target with the very
answer. The rest goes on in fair turns with other work (`GroupShard.later`). Until it is done heartbeats are answered from the last target,
and members get the new one with a later heartbeat, as in Kafka (KIP-1263).

The new target is for the members and the epoch that the group had when the update looked. A change that comes meanwhile raises the group's
epoch further, so another target follows. What a step has to log (an `Edit`) is decided on the group as it is by then.

Invariants: one update of a group is under way at a time; the target's epoch is logged last, so that after a refusal or a new coordinator,
which leaves some members with a new target and others with the last one, a target is due still, and what members hold decides who may have
a partition (I34).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ottla.base.errors import ApiError
from ottla.groups.modern.group import Assignment, EpochGroup
from ottla.groups.modern.records import EpochChange
from ottla.groups.modern.topics import refresh_of
from ottla.groups.shard import GroupShard
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft

STEPS_AT_ONCE = 10
"""A step takes a millisecond or less, those that log up to two: with what else the heartbeat does it holds the loop below 50 ms."""
TARGETS_PER_STEP = 25
TARGET_TOPICS_PER_STEP = 1_000
COMPARED_PER_STEP = 500
COMPARED_TOPICS_PER_STEP = 5_000

ChangeT = TypeVar("ChangeT", bound=EpochChange[Any, Any, Any])
Edit = Callable[[ChangeT, int], None]
"""(change of the group, now) -> what a step has to log is in the change."""
Steps = Generator[Edit[ChangeT] | None, None, None]
Known = Mapping[str, Any]
"""The facts of the members that the target is for."""
Targets = Sequence[tuple[str, Assignment]]


class EpochUpdate(ABC, Generic[ChangeT]):
    """One update; a protocol's own says what its steps are."""

    def __init__(self, shard: GroupShard, group_type: type[EpochGroup[Any, Any]], change_type: Callable[[Any], ChangeT]) -> None:
        self._shard = shard
        self._group_type = group_type
        self._change_type = change_type
        self._group_id = ""
        self._live: EpochGroup[Any, Any] | None = None
        """The group itself, once what began the update is logged."""
        self._epoch: int | None = None
        """That the target is for."""
        self._steps = self._all_steps()

    def begin(self, change: ChangeT, draft: Draft, now_ms: int) -> None:
        """Runs the first steps, or all of them, into `change`; the rest follows when that is logged."""
        self._group_id = change.group_id
        for _ in range(STEPS_AT_ONCE):
            try:
                edit = next(self._steps)
            except StopIteration:
                return
            if edit is not None:
                edit(change, now_ms)
        self._before_rest(change)
        shard = self._shard
        shard.updates[self._group_id] = self
        draft.call(lambda: shard.later(self._rest()))
        draft.on_refusal(lambda _repair, _code: self._give_up())

    @abstractmethod
    def _all_steps(self) -> Steps[ChangeT]:
        """The whole work."""

    def _before_rest(self, change: ChangeT) -> None:
        """What the heartbeat must log itself where the work goes on without it."""

    def _rest(self) -> Iterator[None]:
        """What `begin` has not done; ends when the group is another one or the coordinator is gone."""
        live = self._shard.groups.get(self._group_id)
        self._live = live if isinstance(live, self._group_type) else None
        for edit in self._steps:
            if not self._is_wanted():
                break
            if edit is not None:
                self._shard.run(partial(self._carry_out, edit))
            yield
        if self._shard.updates.get(self._group_id) is self:
            del self._shard.updates[self._group_id]
            self._after_rest()

    def _after_rest(self) -> None:
        """The last step is logged, or what began the update was refused."""

    def _is_wanted(self) -> bool:
        shard, group_id = self._shard, self._group_id
        return self._live is not None and shard.updates.get(group_id) is self and shard.groups.get(group_id) is self._live

    def _carry_out(self, edit: Edit[ChangeT], now_ms: int) -> Decision:
        if not self._is_wanted():
            return NOTHING
        draft, change = Draft(), self._change_type(self._live)
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

    # The last steps of every update

    def _log_target(self, group: EpochGroup[Any, Any], target: Mapping[str, Assignment]) -> Steps[ChangeT]:
        """Logs what differs from the group's last target."""
        changed: list[tuple[str, Assignment]] = []
        members = topics = 0
        for member_id, mine in target.items():
            if group.target.get(member_id) != mine:
                changed.append((member_id, mine))
            members, topics = members + 1, topics + len(mine)
            if members >= COMPARED_PER_STEP or topics >= COMPARED_TOPICS_PER_STEP:
                members = topics = 0
                yield None
        for targets in _few_at_a_time(changed):
            yield partial(self._put_targets, group.facts, targets)
        yield self._put_target_epoch

    def _put_targets(self, known: Known, targets: Targets, change: ChangeT, _now_ms: int) -> None:
        for member_id, target in targets:
            holder = self._holder(change, known, member_id)
            if holder and change.group.target.get(holder) != target:
                change.put_target(holder, target)

    def _holder(self, change: ChangeT, known: Known, member_id: str) -> str:
        """Who has a member's place by now; empty if it has left."""
        return member_id if member_id in change.group.facts else ""

    def _put_target_epoch(self, change: ChangeT, now_ms: int) -> None:
        assert self._epoch is not None and self._epoch > change.group.target_epoch, "a target of a past epoch"
        change.put_target_epoch(self._epoch, now_ms)


def _few_at_a_time(changed: Targets) -> Iterator[Targets]:
    """Targets that one step may log: each is a record, as long as it has topics."""
    few: list[tuple[str, Assignment]] = []
    topics = 0
    for member_id, target in changed:
        few.append((member_id, target))
        topics += len(target)
        if len(few) == TARGETS_PER_STEP or topics >= TARGET_TOPICS_PER_STEP:
            yield few
            few, topics = [], 0
    if few:
        yield few
