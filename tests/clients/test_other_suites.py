"""Errors that the test suites of other clients have found in Ottla, reproduced with single requests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient

Fresh = Callable[[str], str]


@pytest.fixture(scope="module")
def world(broker: BrokerProcess) -> Iterator[World]:
    with WireClient(broker.port) as client:
        yield World(client)


@pytest.mark.parametrize(("key", "version"), [(3, 9), (29, 1), (29, 2)])
def test_bytes_behind_the_end_of_two_requests_are_passed_over(world: World, broker: BrokerProcess, key: int, version: int) -> None:
    """Bytes behind the last field of DescribeAcls and Metadata requests are ignored: segmentio/kafka-go (Go) sends one such byte with
    DescribeAcls, librdkafka three with Metadata.
    """
    with WireClient(broker.port) as client:
        frame = client.frame(world.request(key, version), version)
        client.send(struct.pack(">i", len(frame) - 4 + 3) + frame[4:] + bytes(3))
        assert client.answer(key, version) is not None
        assert client.ask(world.request(key, version), version) is not None, "and the next request is read from its own start"


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(broker: BrokerProcess, fresh: Fresh) -> None:
    """segmentio/kafka-go, TestReader: a topic is deleted and created again while a reader waits. The answer must not report a failed disk.
    """
    topic = fresh("deleted")
    with WireClient(broker.port) as admin, WireClient(broker.port) as reader:
        new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        made = admin.ask(CreateTopicsRequest(topics=[new], timeout_ms=5000), 5)
        assert made.topics[0].error_code == 0
        wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])
        reader.send(reader.frame(FetchRequest(max_wait_ms=10_000, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=[wanted]), 11))
        admin.ask(ApiVersionsRequest(), 0)  # when this is answered, the broker has read the earlier request: the fetch waits
        gone = admin.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 4)
        assert gone.responses[0].error_code == 0
        (partition,) = reader.answer(1, 11).responses[0].partitions
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("key", "version"), [(32, 2), (32, 4), (48, 1), (50, 0)])
def test_the_message_of_success_is_empty_and_not_null(world: World, broker: BrokerProcess, key: int, version: int) -> None:
    """Found by kafkajs (Node): in these three answers Kafka sends an empty string for success."""
    with WireClient(broker.port) as client:
        answer = client.ask(world.request(key, version), version)
    results = answer.results if key == 32 else [answer]
    assert [(part.error_code, part.error_message) for part in results] == [(0, "")] * len(results)
