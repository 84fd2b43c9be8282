"""Finds transactions that stay open at the target, because their markers were never copied.

Compaction of the source removes the records of an ended transaction, and after `delete.retention.ms` its marker. A mirror that had copied
records before, and was stopped for longer, finds neither a record nor a marker. At the target the transaction stays open, and readers with
read_committed wait for it. The source has newer values of its keys, or it was aborted, so an abort marker is right. It takes an offset, so
it can be written only after the graduation.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.admin import LATEST, list_offsets
from ottla.client.core.operations import isolation_level
from ottla.client.core.transaction_admin import describe_producers
from ottla.client.errors import KafkaError


class LostMarkers:
    """Compares the clusters. `notes` has a line for each transaction that was found in the last round."""

    def __init__(self, source: Client, target: Client) -> None:
        self._source = source
        self._target = target
        self._bounds: dict[TopicPartition, tuple[int, int]] = {}
        """The source's last stable offset, and its end, which was asked for after it."""
        self.notes: list[str] = []

    def look_at_source(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Notes the bounds of the source for the next `look_at_target`. Raises `ClientError`."""
        stable = _ends(self._source, partitions, "read_committed")
        ends = _ends(self._source, partitions, "read_uncommitted")
        self._bounds = {one: (stable[one], end) for one, end in ends.items() if one in stable}

    def look_at_target(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Returns the partitions with transactions whose markers are lost. `positions`: the ends of the target's partitions. All
        transactions before the source's last stable offset had ended when its end was asked for, so a target that reaches this end has
        their markers, or will never get them. Raises `ClientError`."""
        reached = {one: stable for one, (stable, end) in self._bounds.items() if positions.get(one, -1) >= end}
        waiting = _ends(self._target, reached, "read_committed")
        suspects = [one for one, end in waiting.items() if end < reached[one]]
        self.notes, found = [], set()
        for partition, producers in (describe_producers(self._target.cluster, suspects) if suspects else {}).items():
            for one in () if isinstance(producers, KafkaError) else producers:
                if 0 <= one.current_txn_start_offset < reached[partition]:
                    found.add(partition)
                    start = one.current_txn_start_offset
                    self.notes.append(
                        f"{partition} has an open transaction of producer id {one.producer_id} at the target, and the source no longer has "
                        "its marker; readers with read_committed wait for it. After --graduate, end it at the target: "
                        f"ottla txn abort {partition.topic} --partition {partition.partition} --start-offset {start}"
                    )
        return found


def _ends(client: Client, partitions: Mapping[TopicPartition, object], isolation: str) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    found = list_offsets(client.cluster, dict.fromkeys(partitions, LATEST), isolation_level=isolation_level(isolation))
    return {partition: one.offset for partition, one in found.items() if not isinstance(one, KafkaError)}
