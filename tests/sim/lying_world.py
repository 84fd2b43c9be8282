"""Clusters in which disks lie (`lying_disks.py`), besides all other faults: no acknowledged record is lost, and all is whole at the end.

A replica that is damaged while another one has been taken away, or is lost for good, may be the last: so nothing is moved, no disk is
replaced, and `min.insync.replicas` stays two.
"""

from __future__ import annotations

from tests.sim.cluster_broker import ClusterBroker
from tests.sim.cluster_world import ClusterWorld


class LyingWorld(ClusterWorld):
    """The faults that a start finds. `RottenWorld` has those that only a read or the scrub finds."""

    is_operated = False
    lies = ("cut", "directory", "file", "old partition", "old disk")


class OldDiskWorld(LyingWorld):
    """A whole disk is what it was earlier. Its broker may have started since, or has renewed its generation. Otherwise only a follower's
    watermark shows that records are missing."""

    lies = ("old disk",)
    settings = ("log.flush.offset.checkpoint.interval.ms=300",)


class RottenWorld(LyingWorld):
    """Segments change on the disk. Recovery or the scrub finds that, and another replica repairs it."""

    lies = ("flip", "lost write", "misdirected")
    settings = ("ottla.scrub.interval.ms=500",)
    is_rolling = True

    def _is_readable(self, broker: ClusterBroker) -> bool:
        return broker.broker_id != self.checks.lying

    def _why_not_whole(self) -> str:
        return super()._why_not_whole() or self._why_damaged()

    def _why_damaged(self) -> str:
        """A log on the disk that lied last which differs from what was committed; empty if there is none."""
        for key in self.keys:
            partition = self.brokers[self.checks.lying].partitions.get(key) if self.checks.lying is not None else None
            ledger = self.checks.ledgers.get((partition.topic_id, key.partition)) if partition is not None else None
            if partition is not None and ledger is not None and not self.checks.holds(partition, ledger):
                return f"{key} on broker {partition.broker_id} is damaged"
        return ""
