"""Moves a partition to other replicas: adds the new ones first, and removes the old ones when all new ones are in sync.

During a move, `replicas` has the target replicas, then the replicas to remove; `adding_replicas` and `removing_replicas` are as in Kafka. A
change of only the order completes immediately.

When replicas are removed, the leader epoch rises. The raised epoch fences a broker that has not processed the removal yet. A stale replica
therefore cannot rejoin when a later move adds it again: it can fetch only after the broker has processed both moves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ottla.base.cluster_metadata import NO_LEADER, PartitionMetadata
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.leader_election import (
    UNCHANGED,
    Standing,
    elect_reassigned,
    eligible_after,
    in_sync_min_while_eligible,
    last_known_after,
)


def check_target(target: Sequence[int], brokers: Collection[int]) -> None:
    """Raises `ApiError` INVALID_REPLICA_ASSIGNMENT, with Kafka's message, if `target` is empty or has unknown or repeated brokers."""
    if not target:
        raise _no_assignment("an empty replica list.")
    before = None
    for broker_id in sorted(target):
        if broker_id not in brokers:
            raise _no_assignment(f"broker {broker_id}, but no such broker is registered.")
        if broker_id == before:
            raise _no_assignment(f"the broker {broker_id} more than once.")
        before = broker_id


def _no_assignment(contents: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {contents}")


def is_moving(partition: PartitionMetadata) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def target_of(partition: PartitionMetadata) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)


def origin_of(partition: PartitionMetadata) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def begun(partition: PartitionMetadata, target: Sequence[int], standing: Standing, in_sync_min: int) -> PartitionMetadata:
    """Returns the state that begins a move to `target`, or completes it if nothing has to be copied; with the next partition epoch. Raises
    `ApiError` INVALID_REPLICA_ASSIGNMENT if only replicas outside the new set, added by an earlier move, can lead."""
    origin = origin_of(partition)
    moving = replace(
        partition,
        replicas=(*target, *(replica for replica in origin if replica not in target)),
        adding_replicas=tuple(replica for replica in target if replica not in origin),
        removing_replicas=tuple(replica for replica in origin if replica not in target),
        partition_epoch=partition.partition_epoch + 1,
    )
    return _fencing_former(partition, finished(_without_former(moving, standing, in_sync_min), standing, in_sync_min))


def _fencing_former(before: PartitionMetadata, after: PartitionMetadata) -> PartitionMetadata:
    """Raises the leader epoch if replicas were removed and it has not risen already."""
    if after.leader_epoch > before.leader_epoch or all(replica in after.replicas for replica in before.replicas):
        return after
    return replace(after, leader_epoch=before.leader_epoch + 1)


def _without_former(partition: PartitionMetadata, standing: Standing, in_sync_min: int) -> PartitionMetadata:
    """Removes replicas that an earlier move had added from the in-sync set and from leadership. Raises `ApiError` if no other replica can
    lead."""
    if all(member in partition.replicas for member in (*partition.isr, *partition.eligible)):
        return partition
    narrowed = _narrowed(partition, partition.replicas, standing, in_sync_min)
    if narrowed is None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No other replica is in sync and can lead.")
    return narrowed


def finished(partition: PartitionMetadata, standing: Standing, in_sync_min: int) -> PartitionMetadata:
    """Completes the move if all target replicas are in sync and one of them can lead. Otherwise returns the partition unchanged."""
    target = target_of(partition)
    if not is_moving(partition) or any(replica not in partition.isr for replica in target):
        return partition
    narrowed = _narrowed(partition, target, standing, in_sync_min)
    if narrowed is None:
        return partition
    return _fencing_former(partition, replace(narrowed, replicas=target, adding_replicas=(), removing_replicas=()))


def _narrowed(
    partition: PartitionMetadata, replicas: Sequence[int], standing: Standing, in_sync_min: int
) -> PartitionMetadata | None:
    """Returns the partition with its in-sync and eligible sets limited to `replicas`, and with one of these as leader. Returns None if none
    of them can lead."""
    isr = tuple(member for member in partition.isr if member in replicas)
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if leader not in replicas:
        elected = elect_reassigned(replicas, partition.isr, standing)
        if elected is None:
            return None
        leader, isr, leader_epoch = elected.leader, elected.isr, leader_epoch + 1
    narrowed = replace(partition, replicas=tuple(replicas))
    in_sync_min = in_sync_min_while_eligible(partition, in_sync_min)
    eligible = eligible_after(narrowed, isr, in_sync_min)
    last_known = last_known_after(narrowed, isr, eligible, in_sync_min, UNCHANGED)
    held = replace(partition, isr=isr, eligible=eligible, last_known=last_known)
    return replace(held, leader=leader, leader_epoch=leader_epoch, last_leader=NO_LEADER)
