"""Writes to or reads from all partitions of a topic `t` in one request."""

from __future__ import annotations

from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch, read_records
from tests.clients.wire_client import WireClient


def create_topic(client: WireClient, count: int) -> None:
    topic = CreatableTopic(name="t", num_partitions=count, replication_factor=1)
    assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 5).topics[0].error_code == 0


def produce_to_all(client: WireClient, count: int, value: bytes) -> None:
    """Appends a record to each of these partitions in one request."""
    data = [PartitionProduceData(index=index, records=encode_batch([Record(0, 1, None, value)])) for index in range(count)]
    request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    answer = client.ask(request, 9)
    assert {partition.error_code for partition in answer.responses[0].partition_responses} == {0}


def fetch_all(client: WireClient, count: int) -> list[list[bytes | None]]:
    """Returns the values of all records of each partition."""
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic="t", partitions=wanted)])
    answer = client.ask(request, 11)
    found = []
    for partition in answer.responses[0].partitions:
        assert partition.error_code == 0
        data, values = bytes(partition.records), []
        while data:
            size = 12 + int.from_bytes(data[8:12], "big")
            values += [record.value for record in read_records(data[:size])]
            data = data[size:]
        found.append(values)
    return found
