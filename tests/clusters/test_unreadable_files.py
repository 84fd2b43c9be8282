"""A file is shorter than it should be, or has bytes that the disk cannot read. Without a scrub the reader gets its records, and the replica
is repaired (P11).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clusters.bad_sector import BadSector
from tests.clusters.cluster import WAIT_SECONDS, Cluster
from tests.clusters.conftest import running
from tests.clusters.test_damaged_replicas import read, segments, wait_until_whole

LEADER = 1
RECORDS, VALUE_BYTES = 60, 20_000


SEGMENT_BYTES = 400_000


@pytest.fixture(scope="module")
def sector(tmp_path_factory: pytest.TempPathFactory) -> BadSector:
    """An unreadable page in a file, for the leader's process."""
    return BadSector(tmp_path_factory.mktemp("sector"), SEGMENT_BYTES // 2)


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, sector: BadSector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"ottla.scrub.interval.ms": 0, "auto.leader.rebalance.enable": "false"}
    made = Cluster(tmp_path_factory.mktemp("unreadable"), zookeeper, **settings)
    made.brokers[LEADER].prefix = sector.prefix
    with running(made) as started:
        yield started


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize("damage", ["cut", "sector"])
def test_a_reader_finds_that_a_file_of_the_leader_cannot_be_read(cluster: Cluster, sector: BadSector, damage: str) -> None:
    admin = cluster.admin()
    config = {"internal.segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "0"}
    admin.create_topics([NewTopic(damage, 1, replica_assignment=[[LEADER, 2, 3]], config=config)])[damage].result(WAIT_SECONDS)
    cluster.wait_until_healthy(damage)
    producer = Producer({"bootstrap.servers": cluster.addresses, "acks": "all", **cluster.client})
    for number in range(RECORDS):
        producer.produce(damage, (b"%d " % number).ljust(VALUE_BYTES, b"x"), partition=0)
        assert producer.flush(WAIT_SECONDS) == 0
    assert len(segments(cluster, LEADER, damage)) > 2 and cluster.leader_of(damage) == LEADER
    path = segments(cluster, LEADER, damage)[1]
    if damage == "cut":
        cut(path)
    else:
        sector.put_into(path)
    assert read(cluster, damage, RECORDS) == list(range(RECORDS))
    wait_until_whole(cluster, LEADER, damage)
    assert cluster.leader_of(damage) != LEADER
    if damage == "sector":
        assert "Input/output error" in cluster.brokers[LEADER].log_text()
