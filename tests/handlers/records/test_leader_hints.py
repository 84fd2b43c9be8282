"""A client that asked another broker than the leader gets the leader's number, epoch and address (KIP-951)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.cluster_metadata import BrokerMetadata, BrokerPut, PartitionMetadata, TopicMetadata, TopicPut
from ottla.base.errors import ErrorCode
from ottla.controller.state import ClusterState
from ottla.handlers.records import fetch, produce
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.handlers.records_world import TOPIC_ID, RecordsWorld, batch, request

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
LEADER, NO_LEADER = 2, 3
"""Two partitions of the topic: broker 2 leads the first, of which this broker has no replica; the other has no leader."""


@pytest.fixture
def world() -> RecordsWorld:
    world = RecordsWorld()
    state = ClusterState("cluster")
    part = PartitionMetadata(index=0, leader=0, leader_epoch=7, replicas=(0, 2), isr=(0, 2))
    partitions = [replace(part, index=index, leader=leader) for index, leader in enumerate((0, 0, 2, -1))]
    state.apply([TopicPut(TopicMetadata(name="t", topic_id=TOPIC_ID, partitions=tuple(partitions)))])
    endpoints = {"PLAINTEXT": ("two.example", 9092), "OTHER": ("other", 1)}
    state.apply([BrokerPut(BrokerMetadata(broker_id=2, endpoints=endpoints, rack="r2"))])
    world.broker.metadata = state
    world.broker.partitions.elsewhere = {LEADER, NO_LEADER}
    return world


def fetched(world: RecordsWorld, version: int, *indexes: int, epoch: int = -1, session: int = -1) -> FetchResponse:
    partitions = [FetchPartition(partition=index, fetch_offset=0, current_leader_epoch=epoch) for index in indexes]
    topics = [FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=partitions)]
    answer = fetch.handle(world.broker, request(version), FetchRequest(max_wait_ms=0, session_epoch=session, topics=topics))
    assert isinstance(answer, FetchResponse)
    return answer


def addresses(answer: FetchResponse | ProduceResponse) -> list[tuple[int, str, int, str | None]]:
    return [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints]


@pytest.mark.parametrize("session", [-1, 0])
def test_fetch(world: RecordsWorld, session: int) -> None:
    answer = fetched(world, 16, LEADER, NO_LEADER, 9, session=session)
    leaders = {part.partition_index: (part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch)
               for part in answer.responses[0].partitions}  # fmt: skip
    assert leaders == {LEADER: (MOVED, 2, 7), NO_LEADER: (MOVED, -1, -1), 9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)}
    assert addresses(answer) == [(2, "two.example", 9092, "r2")]
    nulls = {part.partition_index: part.aborted_transactions is None for part in answer.responses[0].partitions}
    assert nulls == {LEADER: True, NO_LEADER: True, 9: False}, "as in Kafka, where only an unknown partition has an empty list"


def test_a_fetch_for_an_older_epoch(world: RecordsWorld) -> None:
    world.partitions[0].become_leader(leader_epoch=8, partition_epoch=2, replicas=(0, 2), isr=(0,), now_ms=0)
    (part,) = fetched(world, 17, 0, epoch=7).responses[0].partitions
    assert (part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 0, 8)


def test_older_fetches_have_no_place_for_it(world: RecordsWorld) -> None:
    answer = fetched(world, 15, LEADER)
    (part,) = answer.responses[0].partitions
    assert (part.error_code, part.current_leader.leader_id, answer.node_endpoints) == (MOVED, -1, [])


@pytest.mark.parametrize("version", [9, 12, 13])
def test_produce(world: RecordsWorld, version: int) -> None:
    data = [PartitionProduceData(index=index, records=batch(b"x")) for index in (LEADER, NO_LEADER)]
    body = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=data)])
    answer = produce.handle(world.broker, request(version), body)
    assert isinstance(answer, ProduceResponse)
    found = [(part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch)
             for part in answer.responses[0].partition_responses]  # fmt: skip
    is_hinted = version >= produce.LEADER_HINT_SINCE
    assert found == [(MOVED, 2, 7) if is_hinted else (MOVED, -1, -1), (MOVED, -1, -1)]
    assert addresses(answer) == ([(2, "two.example", 9092, "r2")] if is_hinted else [])
