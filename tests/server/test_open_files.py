"""Far more partitions than the process may have files open: all are written, read, flushed and opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch, read_records
from tests.clients.broker_process import BrokerProcess
from tests.clients.wire_client import WireClient

LIMIT = 256
PARTITIONS = 1_000
LIMITED = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$0" "$@"')


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, ("ottla.log.format=text", "flush.messages=1", "ottla.tick.interval.ms=50"), prefix=LIMITED)
    yield process
    if process.is_running:
        process.stop()


def produce_to_all(client: WireClient, value: bytes) -> None:
    data = [PartitionProduceData(index=index, records=encode_batch([Record(0, 1, None, value)])) for index in range(PARTITIONS)]
    request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    answer = client.ask(request, 9)
    assert {partition.error_code for partition in answer.responses[0].partition_responses} == {0}


def fetch_all(client: WireClient) -> list[list[bytes | None]]:
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(PARTITIONS)]
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


def open_descriptors(broker: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def test_a_thousand_partitions_with_256_descriptors(broker: BrokerProcess) -> None:
    broker.start()
    with WireClient(broker.port) as client:
        topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 5).topics[0].error_code == 0
        for value in (b"one", b"two", b"three"):
            produce_to_all(client, value)
        others = [WireClient(broker.port) for _ in range(60)]
        for _ in range(2):
            assert fetch_all(client) == [[b"one", b"two", b"three"]] * PARTITIONS
        assert fetch_all(others[-1]) == [[b"one", b"two", b"three"]] * PARTITIONS, "sixty connections have their share"
        for other in others:
            other.socket.close()
    if Path("/proc/self/fd").exists():
        assert open_descriptors(broker) < LIMIT
    broker.crash()
    with WireClient(broker.port) as client:
        produce_to_all(client, b"four")
        assert fetch_all(client) == [[b"one", b"two", b"three", b"four"]] * PARTITIONS
    assert "offline" not in broker.log_text() and "open files" not in broker.log_text()
