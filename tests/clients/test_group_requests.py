"""Tests the answers to group requests that no stock client sends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages import offset_delete
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.sync_group import SyncGroupRequest
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient


@pytest.fixture(scope="module")
def world(broker: BrokerProcess) -> Iterator[World]:
    with WireClient(broker.port) as client:
        yield World(client)


def test_from_version_5_on_a_sync_names_the_protocol(world: World) -> None:
    member, generation = world.join("syncing")
    fields = {"group_id": "syncing", "generation_id": generation, "member_id": member}
    assert world.client.ask(SyncGroupRequest(**fields), 4).error_code == 0
    nameless = SyncGroupRequest(**fields, protocol_type="consumer", protocol_name=None)
    assert world.client.ask(nameless, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.client.ask(SyncGroupRequest(**fields, protocol_type="consumer", protocol_name="range"), 5).error_code == 0


def test_offsets_of_partitions_that_do_not_exist_are_errors_of_their_own(world: World) -> None:
    partitions = [offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in (1, 7, -1)]
    topics = [
        offset_delete.OffsetDeleteRequestTopic(name=world.topic, partitions=partitions),
        offset_delete.OffsetDeleteRequestTopic(name="missing", partitions=partitions[:1]),
    ]
    answer = world.client.ask(offset_delete.OffsetDeleteRequest(group_id="offsets", topics=topics), 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answered = [(topic.name, [(one.partition_index, one.error_code) for one in topic.partitions]) for topic in answer.topics]
    assert answered == [(world.topic, [(1, 0), (7, unknown), (-1, unknown)]), ("missing", [(1, unknown)])]


def test_a_group_without_a_name_is_one_that_is_not_there(world: World) -> None:
    """A group with an empty name is answered like an unknown group; only deleting its offsets is refused because of the name."""
    world.join("named")
    [deleted] = world.client.ask(DeleteGroupsRequest(groups_names=[""]), 2).results
    assert deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    [described] = world.client.ask(DescribeGroupsRequest(groups=[""]), 5).groups
    assert (described.error_code, described.group_state) == (0, "Dead")
    answer = world.client.ask(offset_delete.OffsetDeleteRequest(group_id="", topics=[]), 0)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_request_for_a_member_id_needs_no_subscription(world: World) -> None:
    """A classic member can ask for a member id without a subscription, also in a group of the new protocol, which otherwise has to parse
    subscriptions of classic members.
    """
    beat = ConsumerGroupHeartbeatRequest(
        group_id="both", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=[world.topic], topic_partitions=[]
    )
    assert world.client.ask(beat, 0).error_code == 0
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    fields = {"group_id": "both", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
    answer = world.client.ask(JoinGroupRequest(**fields, protocols=protocols), 9)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED and answer.member_id
    again = world.client.ask(JoinGroupRequest(**fields, member_id=answer.member_id, protocols=protocols), 9)
    assert again.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
