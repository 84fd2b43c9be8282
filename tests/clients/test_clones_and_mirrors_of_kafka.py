"""`ottla clone` and `ottla mirror` copy topics of Apache Kafka byte for byte, move them to Ottla and back, and continue after kills."""

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
from tests.clients.apache_kafka import Kafka
from tests.clients.broker_process import eventually
from tests.clients.java_program import Java


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Iterator[Kafka]:
    made = Kafka(Java(need_program), tmp_path_factory.mktemp("kafka"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.fixture
def kafka(server: Kafka) -> Iterator[Client]:
    with ottla.client.connect(server.address) as client:
        yield client


def test_a_clone_of_apache_kafka(server: Kafka, kafka: Client, tmp_path: Path) -> None:
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
    command = [sys.executable, "-m", "ottla.cli.main", "clone", server.address, "--topics", "orders", "-d", tmp_path / "clone", "-q"]
    subprocess.run(command, check=True)
    name = "orders-0/00000000000000000000.log"
    assert (tmp_path / "clone" / name).read_bytes() == server.stored("orders") != b""
    expected = [(record.offset, record.key, record.value) for record in records(kafka, orders)]
    assert len(expected) == 101
    with Broker(data_dir=tmp_path / "clone") as broker, ottla.client.connect(broker.direct_server) as local:
        assert [(record.offset, record.key, record.value) for record in records(local, orders)] == expected
        assert local.committed("billing") == {orders: Committed(50, 0, "mine")}
        assert local.describe_topic("orders").topic_id == kafka.describe_topic("orders").topic_id
        assert local.topic_configs("orders")["retention.ms"] == "-1"


def records(client: Client, partition: TopicPartition) -> list[ottla.client.Fetched]:
    end = client.list_offsets({partition: ottla.client.LATEST})[partition].offset
    return [record for fetched in client.read(partition, 0, end) for record in fetched.records()]


# Mirrors


def mirror(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ottla.cli.main", "mirror", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def graduate(*words: str) -> None:
    process = mirror(*words, "--graduate", "-q")
    _, error = process.communicate()
    assert process.returncode == 0, error


def end(client: Client, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    try:
        return client.list_offsets({partition: ottla.client.LATEST}, isolation="read_uncommitted")[partition].offset
    except ottla.client.ClientError:
        return -1


def write(client: Client, topic: str, count: int, *, codec: str = "none") -> None:
    with client.producer(codec=codec) as producer:
        for number in range(count):
            producer.produce(topic, b"%d" % number, codec.encode(), headers=(("number", b"%d" % number),), partition=0)


def transact(client: Client, topic: str, *, is_commit: bool) -> None:
    producer = client.producer(transactional_id=f"t-{topic}")
    producer.begin()
    for _ in range(3):
        producer.produce(topic, b"in a transaction", partition=0)
    producer.flush()
    (producer.commit if is_commit else producer.abort)()
    producer.close()


def contents(client: Client, topic: str) -> list[tuple[object, ...]]:
    """Returns all committed records that a consumer gets."""
    found = records(client, TopicPartition(topic, 0))
    return [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in found]


def test_a_move_to_ottla_and_back(server: Kafka, kafka: Client, tmp_path: Path) -> None:
    """A mirror to Ottla has Kafka's bytes and the groups' offsets, although the mirror and Kafka are killed. A mirror back to Kafka has the
    same offsets, also with transactions.
    """
    topic, group = "moved", "movers"
    kafka.create_topic(topic, partitions=1, replication_factor=1)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        write(kafka, topic, 20, codec=codec)
    transact(kafka, topic, is_commit=False)
    transact(kafka, topic, is_commit=True)
    kafka.commit(group, {TopicPartition(topic, 0): Committed(50, 0, "mine")})
    with Broker(data_dir=tmp_path / "ottla") as broker, ottla.client.connect(broker.direct_server) as local:
        words = (server.address, broker.direct_server, "--topics", topic, "--groups", group)
        process = mirror(*words)
        assert eventually(lambda: end(local, topic) == end(kafka, topic) == 108)
        process.kill()
        process.communicate()
        process = mirror(*words)
        assert process.stderr is not None and process.stderr.readline().startswith("mirroring"), "it has found both clusters"
        server.kill()
        server.start()
        with ottla.client.connect(server.address) as again:
            write(again, topic, 10)
            assert eventually(lambda: end(local, topic) == end(again, topic) == 118)
        process.kill()
        process.communicate()
        graduate(*words)
        assert (tmp_path / "ottla" / f"{topic}-0" / "00000000000000000000.log").read_bytes() == server.stored(topic)
        assert local.committed(group) == {TopicPartition(topic, 0): Committed(50, 0, "mine")}
        write(local, topic, 15, codec="zstd")
        transact(local, topic, is_commit=False)
        transact(local, topic, is_commit=True)
        write(local, topic, 5)
        local.commit(group, {TopicPartition(topic, 0): Committed(145, 0, "moved")})
        graduate(broker.direct_server, server.address, "--topics", topic, "--groups", group)
        with ottla.client.connect(server.address) as again:
            assert contents(again, topic) == contents(local, topic)
            assert end(again, topic) == end(local, topic) == 146
            assert again.committed(group)[TopicPartition(topic, 0)].offset == 145


@pytest.mark.night
def test_kills_while_ottla_is_mirrored_to_kafka(server: Kafka, kafka: Client, tmp_path: Path) -> None:
    """Each record is at its offset once, although the mirror and Kafka are killed."""
    topic = "mirrored"
    with Broker(data_dir=tmp_path / "ottla") as broker, ottla.client.connect(broker.direct_server) as local:
        local.create_topic(topic)
        words = (broker.direct_server, server.address, "--topics", topic, "-q")
        process = mirror(*words)
        for number in range(8):
            write(local, topic, 500, codec="lz4" if number % 2 else "none")
            transact(local, topic, is_commit=number % 2 == 0)
            if number % 4 == 3:
                server.kill()
                server.start()
            elif number % 2:
                process.kill()
                process.communicate()
                process = mirror(*words)
        if process.poll() is not None:
            process.communicate()
            process = mirror(*words)
        with ottla.client.connect(server.address) as again:
            assert eventually(lambda: end(again, topic) == end(local, topic) == 8 * 504)
            assert contents(again, topic) == contents(local, topic)
        process.kill()
        process.communicate()


def test_a_topic_of_kafka_that_has_other_records(server: Kafka, tmp_path: Path) -> None:
    with ottla.client.connect(server.address) as kafka, Broker() as broker, ottla.client.connect(broker.direct_server) as local:
        kafka.create_topic("other", partitions=1, replication_factor=1)
        local.create_topic("other")
        write(kafka, "other", 5)
        process = mirror(broker.direct_server, server.address, "--topics", "other")
        _, error = process.communicate()
        assert process.returncode == 1 and error.count("\n") == 1
        assert "other-0 ends at offset 5 at the target and at 0 at the source" in error
