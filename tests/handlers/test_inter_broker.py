"""APIs that only brokers may use: refused to clients in every version (A5), not advertised, and answered to brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.cluster_metadata import BrokerMetadata, BrokerPut, PartitionPut
from ottla.base.errors import ErrorCode
from ottla.handlers.cluster.api_versions import advertised
from ottla.handlers.served_apis import TABLE
from ottla.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from tests.handlers.admin_world import AdminWorld

REQUESTS = [LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest, ControlledShutdownRequest, AlterPartitionRequest]
CASES = [
    (request, version)
    for request in REQUESTS
    for version in range(TABLE[request.API_KEY].min_version, TABLE[request.API_KEY].max_version + 1)
]


@pytest.mark.parametrize(("request_type", "version"), CASES)
def test_a_client_is_refused(request_type: Any, version: int) -> None:
    assert AdminWorld().ask(request_type(), version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_none_is_advertised() -> None:
    keys = {entry.api_key for entry in advertised(AdminWorld().broker)}
    assert keys.isdisjoint(request.API_KEY for request in REQUESTS)


def as_broker() -> AdminWorld:
    world = AdminWorld()
    world.connection.is_inter_broker = True
    return world


@pytest.mark.parametrize("request_type", [LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest])
def test_a_broker_that_controls_itself_takes_no_orders(request_type: Any) -> None:
    """P4."""
    assert as_broker().ask(request_type()).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("request_type", [LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest])
def test_the_next_controller_is_obeyed(request_type: Any) -> None:
    world = as_broker()
    epoch = world.cluster.metadata.brokers[0].epoch
    assert world.ask(request_type(controller_epoch=9, broker_epoch=epoch)).error_code == ErrorCode.NONE
    assert world.ask(request_type(controller_epoch=8, broker_epoch=epoch)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert world.ask(request_type(controller_epoch=9, broker_epoch=epoch - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert world.ask(request_type(controller_epoch=9), request_type.VERSIONS[1] - 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_controlled_shutdown_names_what_stays() -> None:
    world = as_broker()
    world.cluster.create("a")
    partition = world.cluster.metadata.partition("a", 0)
    assert partition is not None
    other = BrokerMetadata(broker_id=1, endpoints={}, epoch=2)
    world.cluster.show(BrokerPut(other), PartitionPut("a", replace(partition, replicas=(0, 1))))
    epoch = world.cluster.metadata.brokers[0].epoch
    answer = world.ask(ControlledShutdownRequest(broker_id=0, broker_epoch=epoch))
    assert answer.error_code == 0
    assert [(left.topic_name, left.partition_index) for left in answer.remaining_partitions] == [("a", 0)]
    assert world.ask(ControlledShutdownRequest(broker_id=0, broker_epoch=epoch - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("version", [2, 3])
def test_alter_partition(version: int) -> None:
    world = as_broker()
    (made,) = world.cluster.create("a")
    epoch = world.cluster.metadata.brokers[0].epoch
    members = [BrokerState(broker_id=0, broker_epoch=epoch)] if version >= 3 else []
    partition = PartitionData(new_isr=[0] if version < 3 else [], new_isr_with_epochs=members)
    topics = [TopicData(topic_id=made.topic_id, partitions=[partition]), TopicData(topic_id=b"\1" * 16, partitions=[partition])]
    answer = world.ask(AlterPartitionRequest(broker_id=0, broker_epoch=epoch, topics=topics), version)
    assert [(topic.topic_id, part.error_code, part.isr) for topic in answer.topics for part in topic.partitions] == [
        (made.topic_id, 0, [0]),
        (b"\1" * 16, ErrorCode.UNKNOWN_TOPIC_ID, []),
    ]
    stale = world.ask(AlterPartitionRequest(broker_id=0, broker_epoch=epoch + 1, topics=topics), version)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
