"""Batches that Ottla compresses by lz4 are readable by librdkafka, kafka-python, aiokafka and the Java client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer

import ottla.client
from ottla.wire.compression import CODEC_LZ4
from ottla.wire.records import Record, encode_batch
from tests.clients.broker_process import BrokerProcess
from tests.clients.java_program import Java

TOPIC = "packed"
TIME_MS = 1_700_000_000_000


def batches() -> list[list[bytes]]:
    """The values of each batch: one small block, several compressible blocks, several incompressible ones, and both kinds within one batch.
    """
    chance = random.Random(7)
    noise = [chance.randbytes(40_000) for _ in range(20)]
    text = [b'{"carrier": "UA", "delay": %d}' % chance.randrange(300) for _ in range(30_000)]
    return [[b"small"], text, noise, [*text[:12_000], *noise[:10], *text[12_000:20_000]]]


VALUES = [value for batch in batches() for value in batch]


def packed() -> list[bytearray]:
    return [encode_batch([Record(0, TIME_MS, None, value, ()) for value in values], codec=CODEC_LZ4) for values in batches()]


@pytest.fixture(scope="module")
def address(broker: BrokerProcess) -> str:
    with ottla.client.connect(broker.address) as client:
        client.create_topic(TOPIC, partitions=1)
        partition = ottla.client.TopicPartition(TOPIC, 0)
        assert client.produce_batches({partition: packed()}) == {partition: 0}
    return broker.address


def test_the_batches_are_of_several_blocks() -> None:
    sizes = [len(batch) for batch in packed()]
    assert sizes[0] < 1000
    assert all(64 << 10 < size < 12_000_000 for size in sizes[1:])


def test_librdkafka(address: str) -> None:
    with closing(Consumer({"bootstrap.servers": address, "group.id": "lz4-c", "check.crcs": True})) as reader:
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[bytes | None] = []
        while len(found) < len(VALUES):
            some = reader.consume(len(VALUES) - len(found), 60)
            assert some
            assert all(message.error() is None for message in some)
            found += [message.value() for message in some]
    assert found == VALUES


def test_kafka_python(address: str) -> None:
    with closing(KafkaConsumer(TOPIC, bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=60_000)) as reader:
        found = [next(reader).value for _ in VALUES]
    assert found == VALUES


def test_aiokafka(address: str) -> None:
    async def read() -> list[bytes | None]:
        reader = AIOKafkaConsumer(TOPIC, bootstrap_servers=address, auto_offset_reset="earliest", check_crcs=True)
        await reader.start()
        try:
            return [(await asyncio.wait_for(reader.getone(), 60)).value for _ in VALUES]
        finally:
            await reader.stop()

    assert asyncio.run(read()) == VALUES


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
def test_java(tmp_path: Path, need_program: Callable[[str], str]) -> None:
    """DumpLogSegments decompresses each batch with the class that Java's consumers use."""
    log = tmp_path / f"{TOPIC}-0" / f"{0:020}.log"
    log.parent.mkdir()
    offset = 0
    with log.open("wb") as file:
        for values in batches():
            file.write(
                encode_batch([Record(0, TIME_MS, None, value, ()) for value in values], codec=CODEC_LZ4, base_offset=offset)
            )
            offset += len(values)
    done = Java(need_program).run("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", str(log))
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("| offset: ") == len(VALUES)
    assert done.stdout.count("compresscodec: lz4") == done.stdout.count("isvalid: true") == len(batches())
    sizes = [int(line.split("valueSize: ")[1].split()[0]) for line in done.stdout.splitlines() if line.startswith("| offset: ")]
    assert sizes == [len(value) for value in VALUES]
