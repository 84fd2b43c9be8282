"""Moves a member of a consumer or streams group step by step from its current assignment to its target assignment.

First the member revokes partitions that are not in its target. It keeps its epoch until it has confirmed the revocation
(UnrevokedPartitions). Then the member gets the target's epoch and the free partitions. While another member still owns a partition of the
target, the member waits for it (UnreleasedPartitions). A partition therefore never has two owners (I34), and the member keeps reading all
its other partitions.

A partition keeps its assignment epoch while the same member owns it. When a static member returns, its partitions get new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from ottla.groups.modern.group import Assignment
from ottla.groups.modern.reconciling import MemberState, ReconciledAssignment, ReconcilingGroup

Owned = Mapping[Any, Collection[int]]
"""The partitions that a member reports as its own."""


def next_position(group: ReconcilingGroup[Any], member_id: str, owned: Owned | None) -> ReconciledAssignment:
    """Returns the member's current assignment after the next step; the same object if nothing changes."""
    position = group.position(member_id)
    target = group.target.get(member_id, {})
    if position.state is MemberState.STABLE and position.epoch == group.target_epoch:
        return position
    if position.state is MemberState.UNREVOKED_PARTITIONS and _holds(owned, position.revoking):
        return position
    moved = _advance(position, target, group.target_epoch, owned, partial(group.is_free, member_id))
    return position if moved == position else moved


def _advance(
    position: ReconciledAssignment,
    target: Assignment,
    target_epoch: int,
    owned: Owned | None,
    is_free: Callable[[Any, int], bool],
) -> ReconciledAssignment:
    kept: Assignment = {}
    granted: Assignment = {}
    revoking: Assignment = {}
    is_waiting = False
    for key in dict.fromkeys([*target, *position.assigned]):
        wanted, has = target.get(key, ()), position.assigned.get(key, ())
        wanted_set, has_set = frozenset(wanted), frozenset(has)
        stays = tuple(partition for partition in has if partition in wanted_set)
        goes = tuple(partition for partition in has if partition not in wanted_set)
        comes = [partition for partition in wanted if partition not in has_set]
        free = [partition for partition in comes if is_free(key, partition)]
        is_waiting = is_waiting or len(free) < len(comes)
        if stays:
            kept[key] = stays
        if goes:
            revoking[key] = goes
        if stays or free:
            granted[key] = tuple(sorted([*stays, *free]))
    if revoking and _holds(owned, revoking):
        epochs = _epochs(position, max(position.epoch, 0), kept, revoking)
        return ReconciledAssignment(position.epoch, position.previous_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking, epochs)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    previous_epoch = position.previous_epoch if position.epoch == target_epoch else position.epoch
    return ReconciledAssignment(target_epoch, previous_epoch, state, granted, {}, _epochs(position, target_epoch, granted))


def _epochs(position: ReconciledAssignment, epoch: int, *parts: Assignment) -> dict[Any, dict[int, int]]:
    """Returns the assignment epochs of these partitions: a partition of the current assignment keeps its epoch, a new partition gets
    `epoch`.

    If a static member has just returned, or has replaced its earlier process, all partitions get `epoch`.
    """
    known = position.epochs if position.epoch > 0 else {}
    found: dict[Any, dict[int, int]] = {}
    for part in parts:
        for key, partitions in part.items():
            of_key = known.get(key, {})
            found.setdefault(key, {}).update((partition, of_key.get(partition, epoch)) for partition in partitions)
    return found


def _holds(owned: Owned | None, partitions: Owned) -> bool:
    """Whether the member owns one of these partitions. Returns True if the heartbeat has no list of owned partitions."""
    if owned is None:
        return True
    return any(partition in owned.get(key, ()) for key, wanted in partitions.items() for partition in wanted)
