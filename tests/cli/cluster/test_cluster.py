"""`ottla cluster`: brokers, health and versions of a cluster."""

from __future__ import annotations

from ottla.testing.broker import Broker
from ottla.wire.messages.describe_cluster import DescribeClusterResponse
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from tests.cli.conftest import Ottla
from tests.client.fake_broker import FakeBroker


def test_status(ottla: Ottla, broker: Broker, topic: str) -> None:
    found = ottla("cluster", "status", "-o", "json").json()
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
        found = offline("cluster", "status", "-b", server.address, "-o", "json").json()
    assert (found["controller_epoch"], found["reassignments"], found["brokers"][0]["isr_shrinks"]) == (None, None, None)


def test_the_status_names_a_broker_that_is_not_there_but_has_replicas(offline: Ottla) -> None:
    def metadata(_body: object, _version: int) -> MetadataResponse:
        partitions = [MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[2, 1], isr_nodes=[1])]
        brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=server.port)]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[MetadataResponseTopic(name="t", partitions=partitions)])

    with FakeBroker({3: metadata, 60: lambda _body, _version: DescribeClusterResponse(cluster_id="x")}) as server:
        found = offline("cluster", "status", "-b", server.address, "-o", "json").json()
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
    found = ill.json()
    assert (ill.code, found["healthy"]) == (1, False)
    assert found["reasons"] == ["no controller", "1 partition without a leader", "1 partition with a replica that is not in sync"]


def test_api_versions(ottla: Ottla) -> None:
    rows = ottla("cluster", "api-versions", "-o", "json").json()["api_versions"]
    produce = next(row for row in rows if row["api"] == "Produce")
    assert (produce["key"], produce["max"] >= 9, produce["usable"] is not None) == (0, True, True)


def test_brokers_and_topics_in_one_look(ottla: Ottla, broker: Broker, topic: str) -> None:
    found = ottla("cluster", "info", "-o", "json").json()
    host, port = broker.address
    assert found["brokers"] == [{"id": 0, "host": host, "port": port, "rack": None, "controller": True}]
    (row,) = [one for one in found["topics"] if one["topic"] == topic]
    assert (row["partitions"], row["replication_factor"], row["leaderless"], row["out_of_sync"], row["internal"]) == (1, 1, 0, 0, False)
    table = ottla("cluster", "info").out
    assert table.startswith(f"cluster {found['cluster_id']}\n\nID ")
    assert any(line.split() == [topic, "1", "1", "0", "0"] for line in table.splitlines())


# Sizes of logs, by broker and directory


def test_sizes(ottla: Ottla, broker: Broker, topic: str) -> None:
    broker.add_record(topic, "x" * 100)
    found = ottla("logdirs", "--topic-list", topic, "-o", "json").json()["brokers"]
    (directory,) = found[0]["log_dirs"]
    (partition,) = directory["partitions"]
    assert (partition["topic"], partition["partition"], partition["size"] > 100) == (topic, 0, True)
    assert directory["error"] is None
    table = ottla("logdirs", "--topic-list", topic, "--broker-list", "0").out.splitlines()
    assert table[0].split() == ["BROKER", "LOG-DIR", "TOPIC", "PARTITION", "SIZE", "OFFSET-LAG", "FUTURE"]
    assert table[2] == ""
    assert table[3].split() == ["BROKER", "LOG-DIR", "PARTITIONS", "SIZE", "DISK-FREE", "DISK-SIZE", "FREE-%", "CORDONED", "ERROR"]
    total = table[4].split()
    assert total[:4] == ["0", str(broker.data_dir), "1", str(partition["size"])]
    assert len(table) == 5
    assert (directory["size"], directory["partition_count"]) == (partition["size"], 1)
    assert 0 <= directory["free_percent"] <= 100
    assert 0 <= directory["usable_bytes"] <= directory["total_bytes"]
    assert len(ottla("logdirs", "--topic-list", topic, "-o", "csv").out.splitlines()) == 2


def test_internal_topics_can_be_left_out(ottla: Ottla, broker: Broker, topic: str) -> None:
    broker.add_record(topic, "x" * 100)
    ottla("consume", topic, "-g", f"{topic}-readers", "--from-beginning", "-c", "1", "-q")

    def topics(*options: str) -> set[str]:
        brokers = ottla("logdirs", *options, "-o", "json").json()["brokers"]
        return {partition["topic"] for directory in brokers[0]["log_dirs"] for partition in directory["partitions"]}

    assert {topic, "__consumer_offsets"} <= topics()
    assert {name for name in topics("--exclude-internal") if name.startswith("__")} == set()
    assert topic in topics("--exclude-internal")
    (directory,) = ottla("logdirs", "--exclude-internal", "-o", "json").json()["brokers"][0]["log_dirs"]
    assert directory["partition_count"] == len(directory["partitions"]) > 0
    assert directory["size"] == sum(partition["size"] for partition in directory["partitions"])


def test_wrong_brokers(ottla: Ottla) -> None:
    assert ottla("logdirs", "--broker-list", "x").code == 2
    result = ottla("logdirs", "--broker-list", "77")
    assert (result.code in (1, 3), result.err.count("\n")) == (True, 1)
