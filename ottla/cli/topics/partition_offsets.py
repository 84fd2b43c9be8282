"""Offsets of partitions by time; an error of one partition ends the command."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.types import READ_UNCOMMITTED, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.admin import list_offsets
from ottla.client.errors import KafkaError


def offsets_at(
    cluster: Cluster, partitions: Iterable[TopicPartition], moment_ms: int, *, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """The offset of a moment (or of EARLIEST or LATEST) in each partition, -1 where all records are older. Raises the first refusal."""
    offsets = {}
    for partition, found in list_offsets(cluster, dict.fromkeys(partitions, moment_ms), isolation_level=isolation_level).items():
        if isinstance(found, KafkaError):
            raise found
        offsets[partition] = found.offset
    return offsets
