"""A file that is shorter than the broker knows, without a scrub: the reader gets its records, and the replica is repaired (P11)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clusters.cluster import WAIT_SECONDS, Cluster
from tests.clusters.conftest import running
from tests.clusters.test_damaged_replicas import read, segments, wait_until_whole

LEADER = 1
RECORDS, VALUE_BYTES = 60, 20_000


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"ottla.scrub.interval.ms": 0, "auto.leader.rebalance.enable": "false"}
    with running(Cluster(tmp_path_factory.mktemp("unreadable"), zookeeper, **settings)) as started:
        yield started


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def test_a_reader_finds_that_a_file_of_the_leader_is_too_short(cluster: Cluster) -> None:
    name = "cut"
    admin = cluster.admin()
    config = {"internal.segment.bytes": "400000", "file.delete.delay.ms": "0"}
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[LEADER, 2, 3]], config=config)])[name].result(WAIT_SECONDS)
    cluster.wait_until_healthy(name)
    producer = Producer({"bootstrap.servers": cluster.addresses, "acks": "all", **cluster.client})
    for number in range(RECORDS):
        producer.produce(name, (b"%d " % number).ljust(VALUE_BYTES, b"x"), partition=0)
        assert producer.flush(WAIT_SECONDS) == 0
    assert len(segments(cluster, LEADER, name)) > 2 and cluster.leader_of(name) == LEADER
    cut(segments(cluster, LEADER, name)[1])
    assert read(cluster, name, RECORDS) == list(range(RECORDS))
    wait_until_whole(cluster, LEADER, name)
    assert cluster.leader_of(name) != LEADER
