"""Makes the target assignment of a modern group, spread over iterations of the event loop if it is much work.

An update looks up the members' topics, runs an assignor, and logs the differences from the last target, in steps. The first `STEPS_AT_ONCE`
steps run in the heartbeat that starts it, so its answer already has the new target in groups of usual size. The rest shares the loop fairly
with other work (`GroupShard.later`). Until the update ends, heartbeats are answered from the targets logged so far, and members get the new
target with a later heartbeat, as in Kafka (KIP-1263).

The new target is for the members and the epoch at the start of the update. A later change raises the epoch again, so another target
follows. An `Edit` runs on the group's current state and chooses the records.

Invariants: at most one update of a group is running. The target's epoch is logged last. After a refusal or a change of coordinator, some
members may have the new target and others the last target. A new target is then still due, and a member gets a partition only when no other
member owns it (I34).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ottla.base.errors import ApiError
from ottla.groups.modern.group import Assignment, EpochGroup
from ottla.groups.modern.reconciling import ReconcilingGroup
from ottla.groups.modern.records import EpochChange
from ottla.groups.modern.topics import FoundTopics, find_topics, refresh_of
from ottla.groups.shard import GroupShard
from ottla.machine.contract import NOTHING, Decision
from ottla.machine.draft import Draft

STEPS_AT_ONCE = 10
"""Number of steps in the heartbeat. A step usually takes up to a millisecond, or two if it logs, so 10 steps delay other clients little."""
TARGETS_PER_STEP = 25
TARGET_TOPICS_PER_STEP = 1_000
COMPARED_PER_STEP = 500
COMPARED_TOPICS_PER_STEP = 5_000

ChangeT = TypeVar("ChangeT", bound=EpochChange[Any, Any, Any])
Edit = Callable[[ChangeT, int], None]
"""(change of the group, now): adds the records of a step to the change."""
Steps = Generator[Edit[ChangeT] | None, None, None]
Known = Mapping[str, Any]
"""The descriptions of the members that the target is for."""
Targets = Sequence[tuple[str, Assignment]]


class EpochUpdate(ABC, Generic[ChangeT]):
    """One update; the subclass of a protocol defines its steps."""

    def __init__(self, shard: GroupShard, group_type: type[EpochGroup[Any, Any]], change_type: Callable[[Any], ChangeT]) -> None:
        self._shard = shard
        self._group_type = group_type
        self._change_type = change_type
        self._group_id = ""
        self._live: EpochGroup[Any, Any] | None = None
        """The group, after the start of the update was logged."""
        self._epoch: int | None = None
        """The group epoch that the target is for."""
        self._steps = self._all_steps()

    def begin(self, change: ChangeT, draft: Draft, now_ms: int) -> None:
        """Runs the first steps, or all, and adds their records to `change`. The other steps run when these records are committed."""
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
        """Yields all steps."""

    def _before_rest(self, change: ChangeT) -> None:
        """Called if steps remain for later. Adds the records that the heartbeat itself must log."""

    def _rest(self) -> Iterator[None]:
        """Runs the remaining steps; stops if the group was replaced or the coordinator has ended."""
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
        """Called after the last step, or when the update ends early because the group was replaced. Not called after a refusal."""

    def _is_wanted(self) -> bool:
        shard, group_id = self._shard, self._group_id
        return self._live is not None and shard.updates.get(group_id) is self and shard.groups.get(group_id) is self._live

    def _carry_out(self, edit: Edit[ChangeT], now_ms: int) -> Decision:
        if not self._is_wanted():
            return NOTHING
        draft, change = Draft(), self._change_type(self._live)
        try:
            edit(change, now_ms)
        except ApiError:  # too little memory for the topics that an expression matches
            self._give_up()
            return NOTHING
        draft.records = change.records
        draft.on_refusal(lambda _repair, _code: self._give_up())
        return draft.decision()

    def _give_up(self) -> None:
        """Ends the update after a refused record or without memory. The next heartbeat starts a new update."""
        if self._shard.updates.get(self._group_id) is self:
            del self._shard.updates[self._group_id]
            refresh_of(self._shard, self._group_id).topics_version = -1

    # The last steps of every update

    def _log_target(self, group: EpochGroup[Any, Any], target: Mapping[str, Assignment]) -> Steps[ChangeT]:
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
        """Returns the id of the member that now has the place of `member_id`: the same id, or the id of its replacement. Returns an empty
        id if the member has left.
        """
        return member_id if member_id in change.group.facts else ""

    def _put_target_epoch(self, change: ChangeT, now_ms: int) -> None:
        assert self._epoch is not None and self._epoch > change.group.target_epoch, "a target of a past epoch"
        change.put_target_epoch(self._epoch, now_ms)


class ReconcilingUpdate(EpochUpdate[ChangeT]):
    """An update of a consumer or streams group: looks up the topics, then computes the target. `must_look_up`: topics may have changed.
    `wants_other`: the group's epoch must rise."""

    def __init__(
        self,
        shard: GroupShard,
        group_type: type[ReconcilingGroup[Any]],
        change_type: Callable[[Any], ChangeT],
        *,
        must_look_up: bool,
        wants_other: bool,
    ) -> None:
        super().__init__(shard, group_type, change_type)
        self._must_look_up = must_look_up or wants_other
        self._must_raise_epoch = wants_other
        self._is_due = False

    def _before_rest(self, change: ChangeT) -> None:
        if self._must_raise_epoch:
            self._raise_epoch(change, change.group.metadata_hash)

    def _all_steps(self) -> Steps[ChangeT]:
        yield from self._first_steps()
        group: Any = None

        def look(change: ChangeT, now_ms: int) -> None:
            nonlocal group
            group, self._epoch = change.group.copy(), change.group.epoch
            self._note_whether_due(group, now_ms)

        yield look
        if not (self._must_look_up or self._is_due):
            return
        found = yield from find_topics(self._shard.topics, group.subscriptions())
        if self._must_look_up:
            yield partial(self._note_topics, found)
        if self._is_due:
            yield from self._make_target(group, found)

    def _first_steps(self) -> Steps[ChangeT]:
        """Yields the steps before the group's topics are looked up."""
        yield from ()

    @abstractmethod
    def _make_target(self, group: Any, found: FoundTopics) -> Steps[ChangeT]:
        """Computes the target assignment of the members of `group`, and logs its differences from the last one."""

    @abstractmethod
    def _has_rested(self, group: Any, now_ms: int) -> bool:
        """Whether the last target is old enough to be replaced."""

    def _note_topics(self, found: FoundTopics, change: ChangeT, now_ms: int) -> None:
        if self._must_raise_epoch or found.hash != change.group.metadata_hash:
            self._raise_epoch(change, found.hash)
        self._note_whether_due(change.group, now_ms)

    def _note_whether_due(self, group: Any, now_ms: int) -> None:
        assert self._epoch is not None
        self._is_due = self._epoch > group.target_epoch and self._has_rested(group, now_ms)

    def _raise_epoch(self, change: ChangeT, topics_hash: int) -> None:
        """Raises the group's epoch. The target gets the new epoch, unless another change has raised the epoch since the update read the
        group.
        """
        is_same = self._epoch == change.group.epoch
        change.put_epoch(change.group.epoch + 1, topics_hash)
        if is_same:
            self._epoch = change.group.epoch
        self._must_raise_epoch = False

    def _holder(self, change: ChangeT, known: Known, member_id: str) -> str:
        if member_id in change.group.facts:
            return member_id
        # The member has left, or another process has replaced it. A replacement does not raise the epoch.
        instance_id: str | None = known[member_id].instance_id
        holder: str = change.group.static_members.get(instance_id or "", "")
        return holder


def _few_at_a_time(changed: Targets) -> Iterator[Targets]:
    """Splits the targets into parts that one step may log; each target is a record whose size grows with its topics."""
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
