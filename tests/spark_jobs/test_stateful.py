"""Stateful queries: windows that a watermark closes, and joins of two streams, are written once, also after restarts and repeated batches.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.client import TopicPartition, connect
from ottla.testing.broker import Broker
from tests.spark_jobs.queries import run, stock_records, stream, stream_writer, write_numbers


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{abs(hash(request.node.name)):x}"


def write_events(broker: Broker, topic: str, seconds: list[int]) -> None:
    """Writes an event for each second since 1970."""
    with connect(broker.direct_server) as client, client.producer() as producer:
        for second in seconds:
            producer.produce(topic, json.dumps({"at": second}).encode(), b"%d" % second)


def count_windows(spark: Any, broker: Broker, topic: str, sink: str, checkpoint: str) -> Any:
    """Counts events in windows of ten seconds; a window is written when the watermark, ten seconds late, passes its end."""
    from pyspark.sql import functions as f

    rows = stream(spark, broker, subscribe=topic, group=f"g-{sink}", startingOffsets="earliest").load()
    event = f.from_json(rows.value.cast("string"), "at long")
    events = rows.select(event.at.cast("timestamp").alias("at")).withWatermark("at", "10 seconds")
    counts = events.groupBy(f.window("at", "10 seconds")).count()
    values = counts.selectExpr("cast(unix_timestamp(window.start) AS string) AS key", "cast(count AS string) AS value")
    return stream_writer(values, broker, checkpoint, topic=sink, group=f"g-{sink}")


def windows(broker: Broker, sink: str) -> list[tuple[int, int]]:
    return sorted((int(message.key()), int(message.value())) for message in stock_records(broker, sink))


def batches_without_movement(checkpoint: str) -> list[int]:
    """Returns the batches of a query that moved no offset."""
    offsets = Path(checkpoint) / "offsets"
    logs = {int(path.name): path.read_text().splitlines()[2] for path in offsets.iterdir() if path.name.isdigit()}
    return [batch for batch in sorted(logs) if batch > 0 and logs[batch] == logs[batch - 1]]


def forget_commits_from(checkpoint: str, batch: int) -> None:
    """Removes batches from Spark's commit log, as if the driver had died before writing them."""
    for path in (Path(checkpoint) / "commits").iterdir():
        if int(path.name.strip(".").removesuffix(".crc")) >= batch:
            path.unlink()


def test_windows_that_close_without_input_are_written_once(spark: Any, broker: Broker, name: str, checkpoint: str) -> None:
    topic, sink = broker.create_topic(f"events-{name}", partitions=2), broker.create_topic(f"windows-{name}", partitions=2)
    write_events(broker, topic, [1, 2, 3, 11, 12, 41])
    run(count_windows(spark, broker, topic, sink, checkpoint))
    assert windows(broker, sink) == [(0, 3), (10, 2)]
    moved_nothing = batches_without_movement(checkpoint)
    assert moved_nothing, "the windows were closed by a batch that read nothing"
    forget_commits_from(checkpoint, moved_nothing[-1])
    write_events(broker, topic, [42, 75])
    run(count_windows(spark, broker, topic, sink, checkpoint))
    assert windows(broker, sink) == [(0, 3), (10, 2), (40, 2)]


def test_the_whole_result_with_each_batch(spark: Any, broker: Broker, name: str, checkpoint: str) -> None:
    topic, sink = broker.create_topic(f"counted-{name}", partitions=1), broker.create_topic(f"counts-{name}", partitions=1)
    found: list[list[tuple[int, int]]] = []
    for numbers in ([1, 2, 2], [2]):
        write_numbers(broker, topic, numbers)
        rows = stream(spark, broker, subscribe=topic, group=f"g-{sink}", startingOffsets="earliest").load()
        counts = rows.groupBy("key").count().selectExpr("key", "cast(count AS string) AS value")
        run(stream_writer(counts, broker, checkpoint, topic=sink, group=f"g-{sink}").outputMode("complete"))
        found.append(windows(broker, sink))
    assert found == [[(1, 1), (2, 2)], [(1, 1), (1, 1), (2, 2), (2, 3)]]


def join_streams(spark: Any, broker: Broker, left: str, right: str, sink: str, checkpoint: str) -> Any:
    """Orders and payments of the same key."""
    orders, payments = (
        stream(spark, broker, subscribe=topic, group=f"g-{sink}", startingOffsets="earliest", maxOffsetsPerTrigger="20").load()
        for topic in (left, right)
    )
    joined = orders.selectExpr("key", "value AS ordered").join(payments.selectExpr("key AS paid_key", "value AS paid"), _same_key())
    values = joined.selectExpr("key", "concat(cast(ordered AS string), '=', cast(paid AS string)) AS value")
    return stream_writer(values, broker, checkpoint, topic=sink, group=f"g-{sink}")


def _same_key() -> Any:
    from pyspark.sql import functions as f

    return f.expr("key = paid_key")


def test_a_join_of_two_streams_has_each_pair_once(spark: Any, broker: Broker, name: str, checkpoint: str) -> None:
    left, right, sink = (broker.create_topic(f"{kind}-{name}", partitions=2) for kind in ("orders", "payments", "joined"))
    with connect(broker.direct_server) as client:

        def write(topic: str, numbers: range) -> None:
            with client.producer() as producer:
                for number in numbers:
                    producer.produce(topic, b"%d" % number, b"%d" % number)

        write(left, range(60))
        write(right, range(0, 60, 2))
        run(join_streams(spark, broker, left, right, sink, checkpoint))
        last = max(int(path.name) for path in (Path(checkpoint) / "commits").iterdir() if path.name.isdigit())
        forget_commits_from(checkpoint, last)
        write(right, range(1, 60, 2))
        run(join_streams(spark, broker, left, right, sink, checkpoint))
        committed = client.committed(f"g-{sink}")
    values = sorted(message.value().decode() for message in stock_records(broker, sink))
    assert values == sorted(f"{number}={number}" for number in range(60))
    assert {partition for partition, _ in committed.items()} == {TopicPartition(topic, n) for topic in (left, right) for n in range(2)}
    assert sum(found.offset for found in committed.values()) == 120
