"""Moving a partition to other replicas: new ones are added first, old ones go when all new ones are in sync.

While a move is under way the partition's replicas are the target first, then those to be removed, with `adding_replicas` and
`removing_replicas` as Kafka shows them. A change of order alone needs no copying and is complete at once.

When replicas go, the leader epoch rises. A broker that has not learned yet that its replica went, and is about to delete its log for that,
then cannot fetch for a later move that brings the replica back: it fetches again, and may be in sync, only when it has learned of both.
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
    """Raises `ApiError` INVALID_REPLICA_ASSIGNMENT in Kafka's words unless these can be a partition's replicas."""
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
    """The replicas that the partition will have in the end."""
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)


def origin_of(partition: PartitionMetadata) -> tuple[int, ...]:
    """The replicas that the partition had before the move."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def begun(partition: PartitionMetadata, target: Sequence[int], standing: Standing, in_sync_min: int) -> PartitionMetadata:
    """The partition on its way to `target`, or there already if nothing has to be copied. Its partition epoch is the next one. Raises
    `ApiError` INVALID_REPLICA_ASSIGNMENT if replicas that an earlier move has added cannot be given up: only they can lead."""
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
    """In a newer leader epoch if there are fewer replicas."""
    if after.leader_epoch > before.leader_epoch or all(replica in after.replicas for replica in before.replicas):
        return after
    return replace(after, leader_epoch=before.leader_epoch + 1)


def _without_former(partition: PartitionMetadata, standing: Standing, in_sync_min: int) -> PartitionMetadata:
    """Removes former replicas from the in-sync set, and from leadership; an earlier move had added them."""
    if all(member in partition.replicas for member in (*partition.isr, *partition.eligible)):
        return partition
    narrowed = _narrowed(partition, partition.replicas, standing, in_sync_min)
    if narrowed is None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No other replica is in sync and can lead.")
    return narrowed


def finished(partition: PartitionMetadata, standing: Standing, in_sync_min: int) -> PartitionMetadata:
    """The end of a move whose target is wholly in sync; otherwise the partition as it is."""
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
    """The partition with the in-sync and eligible ones of these replicas alone, led by one of them; None if none of them can lead."""
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
