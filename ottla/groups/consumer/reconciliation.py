"""Moves a member of a consumer group step by step from its current assignment to its target assignment.

First the member revokes partitions that are not in its target. It keeps its epoch until it has confirmed the revocation
(UnrevokedPartitions). Then the member gets the target's epoch and the free partitions. While another member still owns a partition of the
target, the member waits for it (UnreleasedPartitions). A partition therefore never has two owners (I34), and the member keeps reading all
its other partitions.

A partition keeps its assignment epoch while the same member owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla.base.uuids import Uuid
from ottla.groups.commands import OwnedPartitions
from ottla.groups.consumer.group import ConsumerAssignment, ConsumerGroup, MemberState
from ottla.groups.modern.group import PartitionsByTopic


def next_position(group: ConsumerGroup, member_id: str, owned: OwnedPartitions | None) -> ConsumerAssignment:
    """Returns the member's current assignment after the next step; the same object if nothing changes."""
    position = group.position(member_id)
    target = group.target.get(member_id, {})
    if position.state is MemberState.STABLE and position.epoch == group.target_epoch:
        return position
    if position.state is MemberState.UNREVOKED_PARTITIONS and _holds(owned, position.revoking):
        return position

    def is_free(topic_id: Uuid, partition: int) -> bool:
        return group.owners.get((topic_id, partition), member_id) == member_id

    moved = _advance(position, target, group.target_epoch, owned, is_free)
    return position if moved == position else moved


def _advance(
    position: ConsumerAssignment,
    target: PartitionsByTopic,
    target_epoch: int,
    owned: OwnedPartitions | None,
    is_free: Callable[[Uuid, int], bool],
) -> ConsumerAssignment:
    kept: PartitionsByTopic = {}
    granted: PartitionsByTopic = {}
    revoking: PartitionsByTopic = {}
    is_waiting = False
    for topic_id in dict.fromkeys([*target, *position.assigned]):
        wanted, has = target.get(topic_id, ()), position.assigned.get(topic_id, ())
        wanted_set, has_set = frozenset(wanted), frozenset(has)
        stays = tuple(partition for partition in has if partition in wanted_set)
        goes = tuple(partition for partition in has if partition not in wanted_set)
        comes = [partition for partition in wanted if partition not in has_set]
        free = [partition for partition in comes if is_free(topic_id, partition)]
        is_waiting = is_waiting or len(free) < len(comes)
        if stays:
            kept[topic_id] = stays
        if goes:
            revoking[topic_id] = goes
        if stays or free:
            granted[topic_id] = tuple(sorted([*stays, *free]))
    if revoking and _holds(owned, revoking):
        epochs = _epochs(position, max(position.epoch, 0), kept, revoking)
        return ConsumerAssignment(position.epoch, position.previous_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking, epochs)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    previous_epoch = position.previous_epoch if position.epoch == target_epoch else position.epoch
    return ConsumerAssignment(target_epoch, previous_epoch, state, granted, {}, _epochs(position, target_epoch, granted))


def _epochs(position: ConsumerAssignment, epoch: int, *parts: PartitionsByTopic) -> dict[Uuid, dict[int, int]]:
    """Returns the assignment epochs of these partitions: a partition of the current assignment keeps its epoch, a new partition gets
    `epoch`.

    If the member joins again or has replaced another member, all partitions get `epoch`.
    """
    known = position.epochs if position.epoch > 0 else {}
    found: dict[Uuid, dict[int, int]] = {}
    for part in parts:
        for topic_id, partitions in part.items():
            of_topic = known.get(topic_id, {})
            found.setdefault(topic_id, {}).update((partition, of_topic.get(partition, epoch)) for partition in partitions)
    return found


def _holds(owned: OwnedPartitions | None, partitions: Mapping[Uuid, Collection[int]]) -> bool:
    """Whether the member owns one of these partitions. Returns True if the heartbeat has no list of owned partitions."""
    if owned is None:
        return True
    return any(partition in owned.get(topic_id, ()) for topic_id, wanted in partitions.items() for partition in wanted)
