"""The coordinators of this broker, by internal topic, and the memory limit of each kind."""

from __future__ import annotations

from typing import Any

from ottla.machine.coordinator import Coordinator
from ottla.machine.memory import CoordinatorMemory
from ottla.replication.partition import Partition
from ottla.sharing.partition_memory import PartitionMemory

MEMORY_PARTS = 4
"""Divisor of `ottla.memory.max.bytes`: each of `CoordinatorMemories` may take a quarter of it."""


class CoordinatorMemories:
    """The memory limits of group members, committed offsets, transactional ids, stored share states and share partitions."""

    def __init__(self, bytes_max: int) -> None:
        part = bytes_max // MEMORY_PARTS
        self.groups = CoordinatorMemory(part, "groups")
        self.offsets = CoordinatorMemory(part, "offsets")
        self.transactional_ids = CoordinatorMemory(part, "transactional ids")
        self.share_states = CoordinatorMemory(part, "states of share groups")
        self.share_partitions = PartitionMemory(CoordinatorMemory(part, "share partitions"))


class Coordinators:
    """The coordinators of all kinds. Partitions of other topics have none."""

    def __init__(self, *kinds: Coordinator[Any]) -> None:
        self._kinds = {kind.topic: kind for kind in kinds}

    def lead(self, partition: Partition) -> None:
        """Starts the coordinator of a partition that this broker now leads."""
        kind = self._kinds.get(partition.topic_partition.topic)
        if kind is not None:
            kind.lead(partition)

    def resign(self, topic: str, index: int) -> None:
        """Stops the coordinator of a partition that this broker no longer leads."""
        kind = self._kinds.get(topic)
        if kind is not None:
            kind.resign(index)

    def close(self) -> None:
        for kind in self._kinds.values():
            kind.close()
