"""Brokers, health and versions of a cluster; feature levels."""

from __future__ import annotations

import json

import pytest

from ottla.testing.broker import Broker
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from tests.cli.conftest import Ottla
from tests.client.fake_broker import FakeBroker


def test_status(ottla: Ottla, broker: Broker, topic: str) -> None:
    found = json.loads(ottla("cluster", "status", "-o", "json").out)
    assert found["broker_count"] == 1
    assert found["topics"] >= 1
    assert found["brokers"][0]["controller"] is True
    text = ottla("cluster", "status").out
    assert f"cluster id: {found['cluster_id']}\n" in text
    assert "ID  HOST" in text
    assert ottla("cluster", "cluster-id").out == f"Cluster ID: {found['cluster_id']}\n"
    assert ottla("cluster", "cluster-id", "-o", "plain").out == f"{found['cluster_id']}\n"


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
    assert found["reasons"] == ["no controller", "1 partitions without a leader", "1 partitions with too few replicas in sync"]


def test_api_versions(ottla: Ottla) -> None:
    rows = json.loads(ottla("cluster", "api-versions", "-o", "json").out)["api_versions"]
    produce = next(row for row in rows if row["api"] == "Produce")
    assert (produce["key"], produce["max"] >= 9, produce["usable"] is not None) == (0, True, True)


def test_features(ottla: Ottla) -> None:
    rows = {row["feature"]: row for row in json.loads(ottla("features", "describe", "-o", "json").out)["features"]}
    assert rows["transaction.version"]["finalized"] <= rows["transaction.version"]["supported_max"]
    assert ottla("features", "describe").out.startswith("FEATURE")


def test_levels_in_force_may_be_asked_for_and_others_are_refused(ottla: Ottla) -> None:
    rows = json.loads(ottla("features", "describe", "-o", "json").out)["features"]
    name, level = next((row["feature"], row["finalized"]) for row in rows if row["finalized"] > 0)
    same = json.loads(ottla("features", "upgrade", "--feature", f"{name}={level}", "--dry-run", "-o", "json").out)
    assert same["features"][0]["result"] == "done"
    assert same["dry_run"] is True
    refused = ottla("features", "upgrade", "--feature", "no.such.version=3", "-o", "json")
    assert refused.code == 1
    assert json.loads(refused.out)["features"][0]["error"]
    for lowered in (("disable", "--feature", name), ("downgrade", "--feature", f"{name}=0", "--unsafe")):
        answer = ottla("features", *lowered, "-o", "json")
        assert answer.code == 1 and json.loads(answer.out)["features"][0]["error"] in ("FEATURE_UPDATE_FAILED", "INVALID_UPDATE_VERSION")
    assert json.loads(ottla("features", "describe", "-o", "json").out)["features"] == rows


def test_the_levels_of_a_release(offline: Ottla) -> None:
    rows = json.loads(offline("features", "version-mapping", "--release-version", "4.0", "-o", "json").out)["levels"]
    assert {"release": "4.0", "feature": "metadata.version", "level": 25} in rows
    assert len(rows) == 7
    assert len(json.loads(offline("features", "version-mapping", "-o", "json").out)["levels"]) > 70


@pytest.mark.parametrize(
    "words",
    [
        ("upgrade",),
        ("upgrade", "--feature", "x"),
        ("upgrade", "--feature", "x=1", "--release-version", "4.0"),
        ("upgrade", "--release-version", "9.9"),
        ("downgrade",),
        ("disable", "--feature", "x=1"),
    ],
)
def test_wrong_usage(offline: Ottla, words: tuple[str, ...]) -> None:
    result = offline("features", *words)
    assert (result.code, result.err.count("\n")) == (2, 1)
