"""`ottla clone` of Apache Kafka: the bytes of its segments, and a broker on the clone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ottla.client
from ottla.base.types import TopicPartition
from ottla.client import Client
from ottla.client.core.group_admin import Committed
from ottla.testing.broker import Broker
from tests.clients.apache_kafka import running_kafka
from tests.clients.java_program import Java


@pytest.fixture
def kafka(tmp_path: Path, need_program: Callable[[str], str]) -> Iterator[Client]:
    with running_kafka(Java(need_program), tmp_path) as (_address, client):
        yield client


def test_a_clone_of_apache_kafka(kafka: Client, tmp_path: Path) -> None:
    """Batches of all codecs, transactions, settings and committed offsets; the files are Kafka's, byte for byte."""
    orders = TopicPartition("orders", 0)
    kafka.create_topic("orders", partitions=2, replication_factor=1, configs={"retention.ms": "-1", "max.message.bytes": "2000000"})
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with kafka.producer(codec=codec) as producer:
            for number in range(20):
                producer.produce("orders", b"%d" % number, codec.encode(), headers=(("number", b"%d" % number),), partition=0)
    producer = kafka.producer(transactional_id="t")
    for end in (producer.abort, producer.commit):
        producer.begin()
        producer.produce("orders", b"in a transaction", partition=0)
        producer.flush()
        end()
    producer.close()
    kafka.commit("billing", {orders: Committed(50, 0, "mine")})
    (address,) = [f"{one.host}:{one.port}" for one in kafka.brokers()]
    command = [sys.executable, "-m", "ottla.cli.main", "clone", address, "--topics", "orders", "-d", tmp_path / "clone", "-q"]
    subprocess.run(command, check=True)
    name = "orders-0/00000000000000000000.log"
    assert (tmp_path / "clone" / name).read_bytes() == (tmp_path / "data" / name).read_bytes() != b""
    expected = [(record.offset, record.key, record.value) for record in records(kafka, orders)]
    assert len(expected) == 101
    with Broker(data_dir=tmp_path / "clone") as broker, ottla.client.connect(broker.direct_server) as local:
        assert [(record.offset, record.key, record.value) for record in records(local, orders)] == expected
        assert local.committed("billing") == {orders: Committed(50, 0, "mine")}
        assert local.describe_topic("orders").topic_id == kafka.describe_topic("orders").topic_id
        assert local.topic_configs("orders")["retention.ms"] == "-1"
    kafka.close()


def records(client: Client, partition: TopicPartition) -> list[ottla.client.Fetched]:
    end = client.list_offsets({partition: ottla.client.LATEST})[partition].offset
    return [record for fetched in client.read(partition, 0, end) for record in fetched.records()]
