"""Faults: functions that break a rule of streams groups, one at a time. The tests show that the verdicts of `streams_world.py` notice each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from ottla.groups.modern.reconciling import ReconciledAssignment
from ottla.groups.offsets import commit
from ottla.groups.streams import heartbeat
from ottla.groups.streams.group import ACTIVE, StreamsGroup, StreamsState, TaskKey
from ottla.groups.streams.records import StreamsChange
from tests.sim.group_faults import acknowledge_before_replicated
from tests.sim.seed_search import catch_seed
from tests.sim.streams_world import StreamsWorld


def task_given_before_released() -> Any:
    """A member gets a task immediately, even if another member still has it."""
    return mock.patch.object(StreamsGroup, "is_free", lambda *_: True)


def process_gets_a_task_twice() -> Any:
    """A member gets a task although another thread of its process, with the same state directory, still has a copy."""

    def is_free(group: StreamsGroup, member_id: str, key: TaskKey, partition: int) -> bool:
        holders = group.holders.get((key.subtopology, partition), ())
        return key.role is not ACTIVE or not any(role is ACTIVE and holder != member_id for holder, role in holders)

    return mock.patch.object(StreamsGroup, "is_free", is_free)


def revocation_forgotten() -> Any:
    """The coordinator forgets which tasks a member has to give up, so other members get them before this member has confirmed that."""
    set_position = StreamsGroup.set_position

    def set_without(group: StreamsGroup, member_id: str, position: ReconciledAssignment) -> None:
        set_position(group, member_id, position._replace(revoking={}))

    return mock.patch.object(StreamsGroup, "set_position", set_without)


def commit_of_any_epoch() -> Any:
    """Commits are accepted from members with former epochs, and from former members."""
    return mock.patch.object(commit, "_check_epoch_commit", lambda *_, **__: None)


def empty_group_begins_anew() -> Any:
    """The first member of an empty group makes a new group, whose epochs begin again."""
    find = heartbeat._find_group

    def find_group(shard: Any, command: Any) -> StreamsChange:
        change = find(shard, command)
        return change if change.group.facts or command.member_epoch else StreamsChange(StreamsGroup(command.group_id))

    return mock.patch.object(heartbeat, "_find_group", find_group)


def internal_topics_tried_once() -> Any:
    """A failed creation of internal topics is treated as still running."""

    class Kept(set[str]):
        def difference_update(self, *_: Any) -> None:
            """Keeps all."""

    make = StreamsState.__init__

    def make_with_kept(state: StreamsState) -> None:
        make(state)
        state.creating = Kept()

    return mock.patch.object(StreamsState, "__init__", make_with_kept)


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        task_given_before_released,
        process_gets_a_task_twice,
        revocation_forgotten,
        commit_of_any_epoch,
        empty_group_begins_anew,
        internal_topics_tried_once,
        acknowledge_before_replicated,
    )
}
VERDICTS = {
    "task_given_before_released": r"two owners: task .* \(I34\)",
    "process_gets_a_task_twice": r"twice in a process: .* \(I34\)",
    "revocation_forgotten": r"taken away: .* \(I36\)",
    "commit_of_any_epoch": r"former: .* \(I34\)|went back: .* \(I35\)",
    "empty_group_begins_anew": r"epoch went back: .* \(I36\)",
    "internal_topics_tried_once": r"unassigned: ",
    "acknowledge_before_replicated": r"answers StreamsGroupHeartbeat of a change before \d+, the high watermark is \d+: .* \(I14\)",
}
"""What is said of each fault. Another verdict under it may be true as well, and shows less: it does not count as found."""


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault's verdict, and the message; (0, "") if no seed fails."""
    return catch_seed(FAULTS[name](), lambda seed: StreamsWorld(seed).run(), seeds, first, VERDICTS[name])
