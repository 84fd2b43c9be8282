"""Runs reads and writes of Spark as a user writes them, and reads the results with a stock client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from ottla.client import connect
from ottla.testing.broker import Broker

WAIT_S = 300


def reader(spark: Any, broker: Broker, **given: str) -> Any:
    return spark.read.format("ottla").option("kafka.bootstrap.servers", broker.direct_server).options(**given)


def stream(spark: Any, broker: Broker, **given: str) -> Any:
    return spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.direct_server).options(**given)


def writer(rows: Any, broker: Broker, **given: str) -> Any:
    return rows.write.format("ottla").mode("append").option("kafka.bootstrap.servers", broker.direct_server).options(**given)


def stream_writer(rows: Any, broker: Broker, checkpoint: str, **given: str) -> Any:
    """A writer that stops when everything there was at its start is read; `.trigger(...)` changes that. No checkpoint: Spark's setting."""
    if checkpoint:
        given = {"checkpointLocation": checkpoint, **given}
    return (
        rows.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", broker.direct_server)
        .options(**given)
        .trigger(availableNow=True)
    )


def run(query_writer: Any) -> Any:
    """Starts a query, waits for its end, and returns it."""
    query = query_writer.start()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()
    return query


def failure(call: Callable[[], Any]) -> str:
    """Returns the message of the error that a user gets."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        call()
    return str(caught.value)


def write_numbers(broker: Broker, topic: str, numbers: Iterable[int], *, partition: int = -1) -> None:
    """Writes numbers; each is the key and the value of a record."""
    with connect(broker.direct_server) as client, client.producer() as producer:
        for number in numbers:
            producer.produce(topic, b"%d" % number, b"%d" % number, headers=[("n", b"%d" % number)], partition=partition)


def stock_records(broker: Broker, topic: str) -> list[Any]:
    """Returns all committed records of a topic of this broker, like `committed_records`."""
    return committed_records(broker.direct_server, topic)


def committed_records(bootstrap: str, topic: str) -> list[Any]:
    """Reads all committed records of a topic with librdkafka, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "stock",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        waiting = set(consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in waiting])
        found = []
        while waiting:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"partitions {waiting} of {topic} do not end"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                waiting.discard(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def stock_values(broker: Broker, topic: str) -> list[int]:
    """Returns the committed values of a topic, as numbers in order."""
    return sorted(int(message.value()) for message in stock_records(broker, topic))


def lag(broker: Broker, group: str, topic: str) -> int:
    """Returns the group's lag as a stock client computes it: ends minus committed offsets. Fails if a partition has no commit."""
    consumer = Consumer({"bootstrap.servers": broker.direct_server, "group.id": group, "isolation.level": "read_committed"})
    try:
        numbers = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        committed = consumer.committed([TopicPartition(topic, number) for number in numbers], timeout=WAIT_S)
        assert all(one.offset >= 0 for one in committed), committed
        ends = [consumer.get_watermark_offsets(one, timeout=WAIT_S)[1] for one in committed]
        return sum(ends) - sum(one.offset for one in committed)
    finally:
        consumer.close()


def numbers_of_batches(query: Any) -> list[int]:
    """Returns the number of rows that each batch of a query has read."""
    return [progress["numInputRows"] for progress in query.recentProgress]


def forget_last_commit(checkpoint: str) -> int:
    """Removes the last batch from Spark's commit log, as if the driver had died before writing it."""
    commits = Path(checkpoint) / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    return last
