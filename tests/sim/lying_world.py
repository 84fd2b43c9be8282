"""Clusters in which disks lie (`lying_disks.py`), besides all other faults: no acknowledged record is lost, and all is whole at the end.

A replica that is damaged while another one has been taken away, or is lost for good, may be the last: so nothing is moved, no disk is
replaced, and `min.insync.replicas` stays two.
"""

from __future__ import annotations

from tests.sim.cluster_world import ClusterWorld


class LyingWorld(ClusterWorld):
    """The faults that a start finds. Damage of what was synced long ago is found by a read or a scrub, which is not simulated yet."""

    is_operated = False
    lies = ("cut", "directory", "file", "old partition", "old disk")


class OldDiskWorld(LyingWorld):
    """A whole disk is what it was earlier. Its broker may have started since. Otherwise the copy has the newest generation, and only a
    follower's watermark shows that records are missing."""

    lies = ("old disk",)
