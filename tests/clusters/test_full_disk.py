"""If the disk of one broker is full, other brokers lead its partitions. When there is space again, it follows and gets in sync."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster, Load

VICTIM = 1
DISK_MIB = 96


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster in which broker 1 has a small disk."""
    made = Cluster(tmp_path / "full", zookeeper)
    disk = made.brokers[VICTIM].data
    disk.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(disk)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"a small disk needs the program mount: {error}")
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    try:
        made.start()
        yield made
        made.stop()
    finally:
        made.kill()
        subprocess.run(["umount", str(disk)], check=True)


def test_leadership_leaves_a_full_disk_and_the_replica_comes_back(cluster: Cluster) -> None:
    topic = "full"
    cluster.create_topic(topic)
    cluster.wait_until_healthy(topic)
    assert VICTIM in {part.leader for part in cluster.metadata(topic).values()}
    filler = cluster.brokers[VICTIM].data / "filler"
    with Load(cluster, topic) as load:
        fill(filler)
        eventually(lambda: all(part.leader not in (-1, VICTIM) for part in cluster.metadata(topic).values()), WAIT_SECONDS)
        load.flows()
        filler.unlink()
        cluster.wait_until_healthy(topic)
        load.flows()
    assert load.verdict() == ""
    assert "goes offline" in cluster.brokers[VICTIM].log_text() and "can be written again" in cluster.brokers[VICTIM].log_text()


def fill(path: Path) -> None:
    """Fills the disk completely."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(os.urandom(size))
            except OSError:
                continue
