"""aiokafka against a broker process: produce, consume, groups, seeks, commits, administration, transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import ProducerFenced, TopicAlreadyExistsError

from tests.clients.broker_process import BrokerProcess

Fresh = Callable[[str], str]
SECONDS = 150


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs a test's coroutine with a time limit."""
    asyncio.run(asyncio.wait_for(work, SECONDS))


class Clients:
    """Makes clients that are closed at the end of the test."""

    def __init__(self, address: str) -> None:
        self.address = address

    @asynccontextmanager
    async def producer(self, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
        client = AIOKafkaProducer(bootstrap_servers=self.address, **settings)
        await client.start()
        try:
            yield client
        finally:
            await client.stop()

    @asynccontextmanager
    async def consumer(self, *topics: str, group: str | None = None, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50, **settings}
        client = AIOKafkaConsumer(*topics, bootstrap_servers=self.address, group_id=group, **settings)
        await client.start()
        try:
            yield client
        finally:
            await client.stop()

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        client = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await client.start()
        try:
            yield client
        finally:
            await client.close()

    async def send(self, topic: str, values: list[bytes], **settings: Any) -> None:
        async with self.producer(**settings) as client:
            reports = await asyncio.gather(*[await client.send(topic, value, partition=0) for value in values])
        assert [report.offset for report in reports] == list(range(len(values)))


@pytest.fixture
def clients(broker: BrokerProcess) -> Clients:
    return Clients(broker.address)


async def read(client: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    return [await asyncio.wait_for(client.getone(), 60) for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_as_it_was(clients: Clients, fresh: Fresh, codec: str | None) -> None:
    async def work() -> None:
        topic, values = fresh("codec"), [b"%d" % number * 50 for number in range(300)]
        await clients.send(topic, values, compression_type=codec, linger_ms=5)
        async with clients.consumer(topic, check_crcs=True) as reader:
            assert [record.value for record in await read(reader, 300)] == values

    run(work())


def test_keys_headers_timestamps_and_nulls(clients: Clients, fresh: Fresh) -> None:
    async def work() -> None:
        topic = fresh("records")
        async with clients.producer(enable_idempotence=True) as client:
            await client.send_and_wait(topic, b"v", b"k", timestamp_ms=1_600_000_000_123, headers=[("a", b"1"), ("a", b"")])
            await client.send_and_wait(topic, None, b"tombstone")
        async with clients.consumer(topic) as reader:
            first, second = await read(reader, 2)
        assert (first.key, first.value, first.timestamp, first.headers) == (b"k", b"v", 1_600_000_000_123, (("a", b"1"), ("a", b"")))
        assert (second.key, second.value, second.offset) == (b"tombstone", None, 1)

    run(work())


def test_large_records(clients: Clients, fresh: Fresh) -> None:
    async def work() -> None:
        topic, value = fresh("large"), bytes(range(256)) * 20_000
        await clients.send(topic, [value], max_request_size=9_000_000)
        async with clients.consumer(topic, max_partition_fetch_bytes=1_000_000) as reader:
            assert [record.value for record in await read(reader, 1)] == [value]

    run(work())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(clients: Clients, fresh: Fresh, acks: int | str) -> None:
    async def work() -> None:
        topic = fresh("acks")
        async with clients.producer(acks=acks) as client:
            await client.send_and_wait(topic, b"a")
            await client.send_and_wait(topic, b"b")
        async with clients.consumer(topic) as reader:
            assert [record.value for record in await read(reader, 2)] == [b"a", b"b"]

    run(work())


def test_seek_commit_and_resume(clients: Clients, fresh: Fresh) -> None:
    async def work() -> None:
        topic, group = fresh("resume"), fresh("group")
        values = [b"%d" % number for number in range(20)]
        await clients.send(topic, values, linger_ms=5)
        place = TopicPartition(topic, 0)
        async with clients.consumer(topic, group=group) as reader:
            await read(reader, 10)
            reader.seek(place, 3)
            assert [record.value for record in await read(reader, 4)] == values[3:7]
            await reader.commit({place: 7})
            assert await reader.committed(place) == 7
            assert await reader.beginning_offsets([place]) == {place: 0}
            assert await reader.end_offsets([place]) == {place: 20}
            found = await reader.offsets_for_times({place: 0})
            assert found[place].offset == 0
        async with clients.consumer(topic, group=group) as reader:
            assert [record.value for record in await read(reader, 13)] == values[7:]

    run(work())


def test_administration(clients: Clients, fresh: Fresh) -> None:
    async def work() -> None:
        topic, group = fresh("admin"), fresh("group")
        async with clients.admin() as admin:
            await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "1000"})])
            again = await admin.create_topics([NewTopic(topic, 2, 1)])
            assert again.topic_errors[0][1] == TopicAlreadyExistsError.errno
            assert topic in await admin.list_topics()
            described = await admin.describe_topics([topic])
            assert len(described[0]["partitions"]) == 2
            await admin.create_partitions({topic: NewPartitions(3)})
            (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            values = {entry[0]: entry[1] for entry in configs.resources[0][4]}
            assert values["retention.ms"] == "1000"
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.bytes": "77"})])
            await clients.send(topic, [b"x"] * 5, linger_ms=5)
            deleted = await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)})
            assert deleted == {TopicPartition(topic, 0): 2}
            async with clients.consumer(topic, group=group) as reader:
                await read(reader, 3)
                await reader.commit()
                (answer,) = await admin.describe_consumer_groups([group])
                assert answer.groups[0][2] == "Stable"
                assert (group, "consumer") in await admin.list_consumer_groups()
            offsets = await admin.list_consumer_group_offsets(group)
            assert offsets[TopicPartition(topic, 0)].offset == 5
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
            assert (await admin.describe_cluster())["cluster_id"]

    run(work())


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor])
def test_two_members_share_the_partitions(clients: Clients, fresh: Fresh, assignor: type) -> None:
    async def work() -> None:
        topic, group = fresh("shared"), fresh("group")
        async with clients.admin() as admin:
            await admin.create_topics([NewTopic(topic, 4, 1)])
        settings = {"group": group, "partition_assignment_strategy": [assignor], "heartbeat_interval_ms": 200}
        async with clients.consumer(topic, **settings) as first:
            async with clients.consumer(topic, **settings) as second:
                while not (first.assignment() and second.assignment() and len(first.assignment()) == 2):
                    await asyncio.sleep(0.05)
                owned = [*first.assignment(), *second.assignment()]
                assert sorted(place.partition for place in owned) == [0, 1, 2, 3]
            while len(first.assignment()) != 4:
                await asyncio.sleep(0.05)

    run(work())


def test_transactions_commit_and_abort(clients: Clients, fresh: Fresh) -> None:
    async def work() -> None:
        topic, source, group = fresh("transactions"), fresh("source"), fresh("group")
        await clients.send(source, [b"1", b"2"], linger_ms=5)
        async with clients.producer(transactional_id=fresh("transactional")) as client:
            async with client.transaction():
                await client.send_and_wait(topic, b"kept")
                await client.send_offsets_to_transaction({TopicPartition(source, 0): 2}, group)
            await client.begin_transaction()
            await client.send_and_wait(topic, b"dropped")
            await client.abort_transaction()
            async with client.transaction():
                await client.send_and_wait(topic, b"kept too")
        async with clients.consumer(topic, isolation_level="read_committed") as reader:
            assert [record.value for record in await read(reader, 2)] == [b"kept", b"kept too"]
        async with clients.consumer(topic) as reader:
            assert [record.offset for record in await read(reader, 3)] == [0, 2, 4]
        async with clients.consumer(source, group=group) as reader:
            assert await reader.committed(TopicPartition(source, 0)) == 2

    run(work())


def test_the_older_producer_of_a_transactional_id_is_fenced(clients: Clients, fresh: Fresh) -> None:
    async def work() -> None:
        topic, name = fresh("fenced"), fresh("transactional")
        async with clients.producer(transactional_id=name) as old:
            await old.begin_transaction()
            await old.send_and_wait(topic, b"old")
            async with clients.producer(transactional_id=name):
                with pytest.raises(ProducerFenced):
                    await old.commit_transaction()

    run(work())
