"""Clusters in which disks lie (`lying_disks.py`), besides all other faults: no acknowledged record is lost, and all is whole at the end.

A replica that is damaged while another one has been taken away, or is lost for good, may be the last: so nothing is moved, no disk is
replaced, and `min.insync.replicas` stays two.
"""

from __future__ import annotations

from tests.sim.cluster_world import ClusterWorld

LIES = ("cut", "directory", "file", "old partition", "old disk", "lost write", "misdirected")
"""Without `flip`: damage of what was synced long ago is found by a read, and not by the start."""


class LyingWorld(ClusterWorld):
    """See above."""

    is_operated = False
    lies = LIES
