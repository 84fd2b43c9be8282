"""Measures costs of transactions that the load "transaction of 10 records" does not: the memory of open ids, and the CPU of committed
reads.

Every function returns rows for the first table of `make bench`: (what, unit, figure). Each starts its own broker.
"""

from __future__ import annotations

import statistics
from contextlib import closing

from confluent_kafka import Producer

from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.client.addresses import parse_address
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.core.producer_identity import ProducerIdentity
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tools.bench.brokers import Broker, start_ottla
from tools.bench.loads import new_topic
from tools.bench.report import Row

OPEN_IDS = 1_000
READ_UNCOMMITTED = 0
FETCH_BYTES = 65_536
FETCHES = 2_500
BLOCKS = 7


def open_ids(_scale: float) -> list[Row]:
    """Measures the memory of 1,000 transactional ids, each with an open transaction that has written one record to each of two
    partitions.
    """
    broker = start_ottla()
    try:
        topic = new_topic(broker, 2)
        with Cluster(broker.address) as cluster:
            open_one(cluster, topic, "warm-up")
            before = broker.resident_mib()
            for number in range(OPEN_IDS):
                open_one(cluster, topic, f"transactional-id-{number:04}")
            grown = broker.resident_mib() - before
    finally:
        broker.stop()
    return [(f"memory of {OPEN_IDS:,} open transactional ids", "MiB", grown)]


def open_one(cluster: Cluster, topic: str, transactional_id: str) -> None:
    identity = ProducerIdentity(cluster.core, transactional_id=transactional_id)
    cluster.run(identity.initialize())
    identity.begin()
    places = [TopicPartition(topic, number) for number in range(2)]
    cluster.run(identity.add_partitions(places))
    batch = encode_batch(
        [Record(0, 0, None, b"x" * 100)],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = [PartitionProduceData(index=place.partition, records=batch) for place in places]
    request = ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    answer = cluster.ask_broker(cluster.leader(places[0]), request)
    codes = [one.error_code for one in answer.responses[0].partition_responses]
    if any(codes):
        raise RuntimeError(f"{transactional_id}: {codes}")


def committed_reads(scale: float) -> list[Row]:
    """Measures the broker's CPU for a Fetch of 64 KiB of committed transactions, by isolation level. The levels alternate."""
    broker = start_ottla()
    try:
        topic = new_topic(broker)
        write_committed(broker, topic)
        count = max(200, int(FETCHES * scale))
        with closing(BlockingConnection(parse_address(broker.address)).open()) as connection:
            for level in (READ_UNCOMMITTED, READ_COMMITTED):
                cpu_of_fetches(broker, connection, topic, level, count // 4)
            pairs = [
                [cpu_of_fetches(broker, connection, topic, level, count) for level in (READ_UNCOMMITTED, READ_COMMITTED)]
                for _ in range(BLOCKS)
            ]
    finally:
        broker.stop()
    # The kernel counts CPU in hundredths of a second, so the mean of all blocks is more exact than a median.
    plain, committed = (statistics.fmean(pair[index] for pair in pairs) for index in (0, 1))
    return [
        ("fetch of 64 KiB, read_uncommitted", "CPU us", plain),
        ("fetch of 64 KiB, read_committed, nothing aborted", "CPU us", committed),
        ("of it for each of read_uncommitted", "", committed / plain),
    ]


def write_committed(broker: Broker, topic: str) -> None:
    """Writes 4 MB in 40 transactions."""
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "bench-committed"})
    producer.init_transactions(30)
    for _ in range(40):
        producer.begin_transaction()
        for _ in range(100):
            producer.produce(topic, b"x" * 1000)
        producer.commit_transaction(30)


def cpu_of_fetches(broker: Broker, connection: BlockingConnection, topic: str, level: int, count: int) -> float:
    """Returns the broker's CPU microseconds per Fetch, over `count` fetches at offsets all over the log."""
    before = broker.cpu_seconds()
    for number in range(count):
        place = FetchPartition(partition=0, fetch_offset=number * 37 % 3800, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=level, topics=[FetchTopic(topic=topic, partitions=[place])]
        )
        found = connection.request(request).responses[0].partitions[0]
        if found.error_code or not found.records:
            raise RuntimeError(f"fetch at {place.fetch_offset}: error {found.error_code}")
    return (broker.cpu_seconds() - before) / count * 1e6
