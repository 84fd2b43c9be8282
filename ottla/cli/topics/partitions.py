"""Checks the partitions that a command line names, looks up their offsets at a time, and parses the replicas of new partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import READ_UNCOMMITTED, TopicPartition
from ottla.cli.command import UsageError, granted
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.admin import list_offsets


def named_partitions(cluster: Cluster, topic: str, numbers: Sequence[int] | None) -> list[TopicPartition]:
    """Returns the partitions of a topic with these numbers, or all without numbers. Raises `ApiError` if one does not exist."""
    there = cluster.partitions(topic)
    if missing := [number for number in numbers or () if number not in there]:
        message = f"topic {topic!r} has {counted(len(there), 'partition')}, so no partition {missing[0]}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return [TopicPartition(topic, number) for number in numbers or there]


def offsets_at(
    cluster: Cluster, partitions: Iterable[TopicPartition], moment_ms: int, *, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Returns the first offset at or after a time (or EARLIEST or LATEST) of each partition, -1 if all records are older.

    Raises the `ApiError` of the first partition with an error.
    """
    found = list_offsets(cluster, dict.fromkeys(partitions, moment_ms), isolation_level=isolation_level)
    return {partition: granted(result).offset for partition, result in found.items()}


def parse_replica_assignment(text: str | None) -> list[list[int]] | None:
    """Returns the brokers of each partition: `0:1,1:2` puts partition 0 on brokers 0 and 1, and partition 1 on 1 and 2.

    Returns None without text. Raises UsageError for an invalid assignment.
    """
    if not text:
        return None
    try:
        placed = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--replica-assignment {text!r} is not BROKER:BROKER,BROKER:BROKER...") from None
    for number, brokers in enumerate(placed):
        if len(set(brokers)) != len(brokers):
            raise UsageError(f"--replica-assignment names a broker twice for partition {number}")
        if len(brokers) != len(placed[0]):
            raise UsageError("--replica-assignment gives partitions different numbers of replicas")
    return placed
