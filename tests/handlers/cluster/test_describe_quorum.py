"""DescribeQuorum: a broker that is its own controller is its own quorum."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tests.fakes.clock import ManualClock
from tests.handlers.admin_world import AdminWorld, DenyAll


def asked(topic: str = "__cluster_metadata", *partitions: int) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name=topic, partitions=[PartitionData(partition_index=index) for index in partitions])]
    )


@pytest.mark.parametrize("version", range(3))
def test_the_controller_leads_itself(version: int) -> None:
    world = AdminWorld()
    world.broker.clock = ManualClock()
    answer = world.ask(asked("__cluster_metadata", 0), version)
    [topic] = answer.topics
    [partition] = topic.partitions
    assert (answer.error_code, topic.topic_name, partition.error_code, partition.leader_id) == (0, "__cluster_metadata", 0, 0)
    [voter] = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset, partition.observers) == (0, partition.high_watermark, [])
    assert partition.leader_epoch == world.cluster.loop.state.controller_epoch >= 0
    assert 0 <= partition.high_watermark < 100, "a plain number, and not an id of ZooKeeper's transactions"
    if version:
        assert voter.last_caught_up_timestamp == world.broker.clock.wall_ms()
    if version > 1:
        address = world.broker.metadata.brokers[0].endpoints["PLAINTEXT"]
        assert [(node.node_id, [(one.name, one.host, one.port) for one in node.listeners]) for node in answer.nodes] == [
            (0, [("PLAINTEXT", *address)])
        ]


def test_while_no_controller_is_known_nothing_is_made_up() -> None:
    world = AdminWorld()
    world.broker.metadata.controller_id = -1
    [topic] = world.ask(asked("__cluster_metadata", 0)).topics
    [partition] = topic.partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert (partition.high_watermark, partition.current_voters) == (-1, [])


@pytest.mark.parametrize(("topic", "index"), [("__cluster_metadata", 1), ("t", 0)])
def test_there_is_no_other_quorum(topic: str, index: int) -> None:
    [answer] = AdminWorld().ask(asked(topic, index)).topics
    assert [(part.partition_index, part.error_code) for part in answer.partitions] == [(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_without_the_right_to_look_at_the_cluster() -> None:
    answer = AdminWorld(authorizer=DenyAll()).ask(asked("__cluster_metadata", 0))
    assert (answer.error_code, answer.topics) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
