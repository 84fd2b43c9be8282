"""Clusters in which disks are damaged (`lying_disks.py`), in addition to all other faults. No acknowledged record may be lost, and all
replicas must be complete at the end. If another replica was moved or lost permanently, the damaged replica could be the last one. Therefore
no replica is moved, no disk is replaced, and `min.insync.replicas` stays two.
"""

from __future__ import annotations

from tests.sim.cluster_broker import ClusterBroker
from tests.sim.cluster_world import ClusterWorld


class LyingWorld(ClusterWorld):
    """A world with damage that the broker finds at its start. `RottenWorld` has damage that only a read or the scrub finds."""

    is_operated = False
    lies = ("cut", "directory", "file", "old partition", "old disk")


class OldDiskWorld(LyingWorld):
    """A world in which a whole disk is replaced by an earlier copy. The broker may have been started, or may have renewed its generation,
    since the copy. Otherwise only a follower's high watermark shows that records are missing.
    """

    lies = ("old disk",)
    settings = ("log.flush.offset.checkpoint.interval.ms=300",)


class RottenWorld(LyingWorld):
    """A world in which bytes of segments change. Recovery or the scrub finds that, and the broker repairs them from another replica."""

    lies = ("flip", "lost write", "misdirected")
    settings = ("ottla.scrub.interval.ms=500",)
    is_rolling = True

    def _is_readable(self, broker: ClusterBroker) -> bool:
        return broker.broker_id != self.checks.lying

    def _why_not_whole(self) -> str:
        return super()._why_not_whole() or self._why_damaged()

    def _why_damaged(self) -> str:
        """Returns a log on the last damaged disk that differs from the committed records; empty if there is none."""
        for key in self.keys:
            partition = self.brokers[self.checks.lying].partitions.get(key) if self.checks.lying is not None else None
            ledger = self.checks.ledgers.get((partition.topic_id, key.partition)) if partition is not None else None
            if partition is not None and ledger is not None and not self.checks.holds(partition, ledger):
                return f"{key} on broker {partition.broker_id} is damaged"
        return ""
