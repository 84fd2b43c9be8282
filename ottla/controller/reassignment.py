"""Moving a partition to other replicas: new ones are added first, old ones go when all new ones are in sync.

While a move is under way the partition's replicas are the target first, then those to be removed, with `adding_replicas` and
`removing_replicas` as Kafka shows them. A change of order alone needs no copying and is complete at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.election import elect_reassigned


def check_target(target: Sequence[int], brokers: Collection[int]) -> None:
    """Raises `ApiError` INVALID_REPLICA_ASSIGNMENT unless these can be a partition's replicas."""
    if not target:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The replica list must not be empty.")
    if len(dict.fromkeys(target)) != len(target):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The replica list {list(target)} names a broker twice.")
    for broker_id in target:
        if broker_id not in brokers:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Broker {broker_id} is not registered.")


def is_moving(partition: PartitionMetadata) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def target_of(partition: PartitionMetadata) -> tuple[int, ...]:
    """The replicas that the partition will have in the end."""
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)


def origin_of(partition: PartitionMetadata) -> tuple[int, ...]:
    """The replicas that the partition had before the move."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def begun(partition: PartitionMetadata, target: Sequence[int], live: Collection[int]) -> PartitionMetadata:
    """The partition on its way to `target`, or there already if nothing has to be copied. Its partition epoch is the next one."""
    origin = origin_of(partition)
    moving = replace(
        partition,
        replicas=(*target, *(replica for replica in origin if replica not in target)),
        adding_replicas=tuple(replica for replica in target if replica not in origin),
        removing_replicas=tuple(replica for replica in origin if replica not in target),
        partition_epoch=partition.partition_epoch + 1,
    )
    return finished(moving, live)


def finished(partition: PartitionMetadata, live: Collection[int]) -> PartitionMetadata:
    """The end of a move whose target is wholly in sync; otherwise the partition as it is."""
    target = target_of(partition)
    if not is_moving(partition) or any(replica not in partition.isr for replica in target):
        return partition
    isr = tuple(member for member in partition.isr if member in target)
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if leader not in target:
        elected = elect_reassigned(target, partition.isr, live)
        if elected is None:
            return partition
        leader, isr, leader_epoch = elected.leader, elected.isr, leader_epoch + 1
    return replace(partition, replicas=target, isr=isr, leader=leader, leader_epoch=leader_epoch, adding_replicas=(), removing_replicas=())
