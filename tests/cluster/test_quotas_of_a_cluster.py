"""Quotas on three production nodes: set at any node, in force on all, enforced by the broker that executes a request, and never applied to
brokers."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.cluster.nodes import Nodes

ALL = (1, 2, 3)


def set_quota(nodes: Nodes, broker_id: int, key: str, value: float | None) -> None:
    """Sets a quota that applies to each client id."""
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=None)], ops=[OpData(key=key, value=value or 0, remove=value is None)]
    )
    (result,) = nodes.ask(broker_id, AlterClientQuotasRequest(entries=[entry])).entries
    assert result.error_code == 0


def limited(nodes: Nodes) -> list[int]:
    return [broker_id for broker_id in ALL if nodes.nodes[broker_id].broker.quotas is not None]


def test_a_quota_reaches_all_brokers_and_one_that_starts_and_leaves_them_again() -> None:
    nodes = Nodes(3)
    set_quota(nodes, 3, "producer_byte_rate", 100.0)
    nodes.until(lambda: limited(nodes) == [1, 2, 3])
    nodes.kill(2)
    nodes.start(2)
    nodes.until(lambda: limited(nodes) == [1, 2, 3])
    set_quota(nodes, 2, "producer_byte_rate", None)
    nodes.until(lambda: not limited(nodes))
    assert [nodes.nodes[broker_id].metadata.quotas for broker_id in ALL] == [{}, {}, {}]


def test_brokers_copy_records_whatever_clients_may_fetch() -> None:
    nodes = Nodes(3)
    set_quota(nodes, 1, "consumer_byte_rate", 1.0)
    nodes.until(lambda: limited(nodes) == [1, 2, 3])
    nodes.create("t", [1, 2, 3])
    for number in range(5):
        nodes.write(f"{number}" * 1000)
    nodes.until(lambda: all(nodes.replica(broker_id).high_watermark == 5 for broker_id in ALL), 5_000)
    assert all(nodes.replica(broker_id).log.log_end_offset == 5 for broker_id in ALL)


@pytest.mark.parametrize("is_controller", [False, True])
def test_changes_are_charged_by_the_controller_whichever_broker_is_asked(is_controller: bool) -> None:
    nodes = Nodes(3)
    set_quota(nodes, 1, "controller_mutation_rate", 1.0)
    nodes.until(lambda: limited(nodes) == [1, 2, 3])
    asked = next(broker_id for broker_id in ALL if (broker_id == nodes.controller_id) == is_controller)
    topics = [CreatableTopic(name=name, num_partitions=12, replication_factor=1) for name in ("a", "b")]
    answer = nodes.ask(asked, CreateTopicsRequest(topics=topics))
    assert {topic.name: topic.error_code for topic in answer.topics} == {"a": 0, "b": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert answer.throttle_time_ms > 0
    muted = [broker_id for broker_id in ALL if (quotas := nodes.nodes[broker_id].quotas) is not None and quotas.throttling.throttled_count]
    assert muted in ([asked], []), "the client's connection, never the brokers'; it may be closed by now"
