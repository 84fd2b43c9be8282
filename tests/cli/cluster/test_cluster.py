"""`ottla cluster`: brokers, health and versions of a cluster."""

from __future__ import annotations

import json

from ottla.testing.broker import Broker
from ottla.wire.messages.describe_cluster import DescribeClusterResponse
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from tests.cli.conftest import Ottla
from tests.client.fake_broker import FakeBroker


def test_status(ottla: Ottla, broker: Broker, topic: str) -> None:
    found = json.loads(ottla("cluster", "status", "-o", "json").out)
    assert found["broker_count"] == 1
    assert found["topics"] >= 1
    assert found["brokers"][0]["controller"] is True
    assert (found["brokers"][0]["isr_expansions"], found["brokers"][0]["isr_shrinks"], found["reassignments"]) == (0, 0, [])
    assert found["controller_epoch"] >= 1
    text = ottla("cluster", "status").out
    assert f"cluster id: {found['cluster_id']}\n" in text
    assert "ID  HOST" in text and f"controller epoch: {found['controller_epoch']}\n" in text and "reassignments: 0\n" in text
    assert ottla("cluster", "cluster-id").out == f"Cluster ID: {found['cluster_id']}\n"
    assert ottla("cluster", "cluster-id", "-o", "plain").out == f"{found['cluster_id']}\n"


def test_the_status_of_a_broker_that_is_not_ours(offline: Ottla) -> None:
    """What it does not say is unknown, not zero."""

    def metadata(_body: object, _version: int) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=server.port)], controller_id=1)

    with FakeBroker({3: metadata, 60: lambda _body, _version: DescribeClusterResponse(cluster_id="x")}) as server:
        found = json.loads(offline("cluster", "status", "-b", server.address, "-o", "json").out)
    assert (found["controller_epoch"], found["reassignments"], found["brokers"][0]["isr_shrinks"]) == (None, None, None)


def test_the_status_names_a_broker_that_is_not_there_but_has_replicas(offline: Ottla) -> None:
    def metadata(_body: object, _version: int) -> MetadataResponse:
        partitions = [MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[2, 1], isr_nodes=[1])]
        brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=server.port)]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[MetadataResponseTopic(name="t", partitions=partitions)])

    with FakeBroker({3: metadata, 60: lambda _body, _version: DescribeClusterResponse(cluster_id="x")}) as server:
        found = json.loads(offline("cluster", "status", "-b", server.address, "-o", "json").out)
        table = offline("cluster", "status", "-b", server.address).out
    away = {"id": 2, "host": None, "port": None, "rack": None, "controller": False, "leaders": 0, "replicas": 1, "out_of_sync": 1}
    assert found["brokers"][1] == away | {"controller_epoch": None, "isr_expansions": None, "isr_shrinks": None}
    assert (found["broker_count"], len(found["brokers"])) == (1, 2)
    assert ["2", "-", "-", "-", "false", "0", "1", "1", "-", "-"] in [line.split() for line in table.splitlines()]


def test_a_healthy_cluster_and_an_unhealthy_one(ottla: Ottla, offline: Ottla) -> None:
    well = ottla("cluster", "health")
    assert (well.code, well.out) == (0, "healthy\n")

    def metadata(_body: object, _version: int) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=0, leader_id=-1, error_code=5, replica_nodes=[1], isr_nodes=[1]),
            MetadataResponsePartition(partition_index=1, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1]),
        ]
        brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)]
        return MetadataResponse(brokers=brokers, controller_id=-1, topics=[MetadataResponseTopic(name="t", partitions=partitions)])

    with FakeBroker({3: metadata}) as broker:
        ill = offline("cluster", "health", "-b", broker.address, "-o", "json")
    found = json.loads(ill.out)
    assert (ill.code, found["healthy"]) == (1, False)
    assert found["reasons"] == ["no controller", "1 partition without a leader", "1 partition with too few replicas in sync"]


def test_api_versions(ottla: Ottla) -> None:
    rows = json.loads(ottla("cluster", "api-versions", "-o", "json").out)["api_versions"]
    produce = next(row for row in rows if row["api"] == "Produce")
    assert (produce["key"], produce["max"] >= 9, produce["usable"] is not None) == (0, True, True)


def test_brokers_and_topics_in_one_look(ottla: Ottla, broker: Broker, topic: str) -> None:
    found = json.loads(ottla("cluster", "info", "-o", "json").out)
    host, port = broker.address
    assert found["brokers"] == [{"id": 0, "host": host, "port": port, "rack": None, "controller": True}]
    (row,) = [one for one in found["topics"] if one["topic"] == topic]
    assert (row["partitions"], row["replication_factor"], row["leaderless"], row["out_of_sync"], row["internal"]) == (1, 1, 0, 0, False)
    table = ottla("cluster", "info").out
    assert table.startswith(f"cluster {found['cluster_id']}\n\nID ")
    assert any(line.split() == [topic, "1", "1", "0", "0"] for line in table.splitlines())
