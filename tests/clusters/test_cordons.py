"""A broker whose log directories are cordoned (KIP-1066) gets no new replicas, neither of new topics nor by plans of moves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ottla.client.blocking.cluster import Cluster as ClientCluster
from ottla.client.core.admin import BROKER_RESOURCE, alter_configs
from ottla.testing.zookeeper_process import ZooKeeperProcess
from tests.clients.broker_process import ROOT, eventually
from tests.clusters.cluster import WAIT_SECONDS, Cluster
from tests.clusters.conftest import running

CORDONED, DRAINED = 3, 2


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("cordons"), zookeeper, **{"min.insync.replicas": 1})) as made:
        yield made


def command(cluster: Cluster, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *words, "--bootstrap-server", cluster.addresses],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    return done.stdout


def cordoned_brokers(cluster: Cluster) -> set[int]:
    """Returns the brokers that have only cordoned directories, from the output of `kafka-log-dirs`."""
    shown = json.loads(command(cluster, "kafka-log-dirs", "--describe").splitlines()[-1])
    return {one["broker"] for one in shown["brokers"] if all(found.get("isCordoned") for found in one["logDirs"])}


def test_a_cordoned_broker_gets_no_new_replicas(cluster: Cluster) -> None:
    cluster.create_topic("before", partitions=6, replicas=1)
    assert {part.leader for part in cluster.metadata("before").values()} == {1, DRAINED, CORDONED}
    with ClientCluster(cluster.addresses) as client:
        alter_configs(client, BROKER_RESOURCE, str(CORDONED), changes={"cordoned.log.dirs": "*"})
    eventually(lambda: cordoned_brokers(cluster) == {CORDONED}, WAIT_SECONDS)
    plan = json.loads(command(cluster, "partitions", "drain", "--broker", str(DRAINED), "-o", "json"))["partitions"]
    assert plan and all(one["new_replicas"] == [1] for one in plan)
    cluster.create_topic("after", partitions=6, replicas=2)
    assert {broker for part in cluster.metadata("after").values() for broker in part.replicas} == {1, DRAINED}
    with ClientCluster(cluster.addresses) as client:
        alter_configs(client, BROKER_RESOURCE, str(CORDONED), deletions=["cordoned.log.dirs"])
    eventually(lambda: cordoned_brokers(cluster) == set(), WAIT_SECONDS)
    cluster.create_topic("later", partitions=6, replicas=1)
    assert CORDONED in {part.leader for part in cluster.metadata("later").values()}
