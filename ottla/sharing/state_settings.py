"""The settings of a share coordinator, and its view of the topics that exist.

The comments name the configuration key of a field; `base/settings/` has the defaults. When a dynamic setting changes, a new object replaces
the old one.
"""

from __future__ import annotations

from typing import Protocol

from ottla.base.immutable import immutable
from ottla.base.uuids import Uuid


@immutable(kw_only=True)
class ShareStateSettings:
    updates_per_snapshot: int  # share.coordinator.snapshot.update.records.per.snapshot
    cold_snapshot_interval_ms: int  # share.coordinator.cold.partition.snapshot.interval.ms
    prune_interval_ms: int  # share.coordinator.state.topic.prune.interval.ms


class StateTopicsView(Protocol):
    """The partitions that exist in the cluster."""

    def has_partition(self, topic_id: Uuid, partition: int) -> bool: ...

    def is_deleted(self, topic_id: Uuid) -> bool:
        """Whether the topic was certainly deleted; an unknown topic may be newer than the broker's metadata."""
