"""The source under Spark: batch reads, SQL, streams with admission control, restarts; errors that a user can read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.client import TopicPartition, connect
from ottla.spark.progress import readable_progress
from ottla.testing.broker import Broker
from tests.spark_jobs.queries import WAIT_S, failure, reader, run, stock_values, stream, stream_writer, write_numbers


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    return broker.create_topic(f"source-{abs(hash(request.node.name)):x}", partitions=3)


@pytest.fixture
def fill(broker: Broker, topic: str) -> Callable[[int, int], None]:
    """Writes the values `first` to `last` - 1."""
    return lambda first, last: write_numbers(broker, topic, range(first, last))


Fill = Callable[[int, int], None]


class Batches:
    """Collects the rows of each batch of a query, which the query writes to files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, rows: Any, batch_id: int) -> None:
        found = [int(row.value) for row in rows.select("value").collect()]
        (self.directory / f"{batch_id}.json").write_text(json.dumps(found))

    def run(self, rows: Any, checkpoint: str) -> Any:
        """Runs a query until it has read everything; returns it."""
        self.directory.mkdir(exist_ok=True)
        query = rows.writeStream.foreachBatch(self).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        return query

    def rows(self) -> dict[int, list[int]]:
        return {int(path.stem): json.loads(path.read_text()) for path in self.directory.iterdir()}

    def values(self) -> list[int]:
        return sorted(value for rows in self.rows().values() for value in rows)


def test_a_batch_read_has_the_columns_of_the_kafka_connector(spark: Any, broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 500)
    rows = reader(spark, broker, subscribe=topic, includeHeaders="true", minPartitions="5").load()
    assert rows.dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    assert rows.rdd.getNumPartitions() >= 5
    found = rows.collect()
    assert sorted(int(row.value) for row in found) == list(range(500))
    assert all(row.key == row.value and row.topic == topic and row.timestampType == 0 for row in found)
    assert all([(header.key, header.value) for header in row.headers] == [("n", row.value)] for row in found)
    stored = {(record.partition, record.offset): record.value for record in broker.records(topic)}
    assert {(row.partition, row.offset): row.value for row in found} == stored
    times = {(record.partition, record.offset): record.timestamp for record in broker.records(topic)}
    assert {(row.partition, row.offset): round(row.timestamp.timestamp() * 1000) for row in found} == times


def test_a_schema_chooses_columns(spark: Any, broker: Broker, topic: str, fill: Fill, checkpoint: str) -> None:
    fill(0, 5)
    schema = "offset BIGINT, value BINARY"
    rows = reader(spark, broker, subscribe=topic).schema(schema).load()
    assert rows.dtypes == [("offset", "bigint"), ("value", "binary")]
    assert sorted(int(row.value) for row in rows.collect()) == list(range(5))
    assert rows.count() == 5
    sink = broker.create_topic(f"{topic}-sink")
    chosen = stream(spark, broker, subscribe=topic, group=f"{topic}-g", startingOffsets="earliest").schema(schema).load()
    run(stream_writer(chosen.selectExpr("value"), broker, checkpoint, topic=sink, group=f"{topic}-g"))
    assert stock_values(broker, sink) == list(range(5))


def test_a_dataframe_is_a_snapshot(spark: Any, broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 10)
    rows = reader(spark, broker, subscribe=topic).load()
    assert rows.count() == 10
    fill(10, 20)
    assert rows.count() == 10
    assert rows.join(rows.select("offset", "partition"), ["offset", "partition"]).count() == 10
    assert reader(spark, broker, subscribe=topic).load().count() == 20


def test_empty_topics(spark: Any, broker: Broker, topic: str) -> None:
    assert reader(spark, broker, subscribe=topic).load().collect() == []


def test_a_view_in_sql(spark: Any, broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 100)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW source_view USING ottla OPTIONS "
        f"(`kafka.bootstrap.servers` '{broker.direct_server}', subscribe '{topic}')"
    )
    row = spark.sql("SELECT count(*) AS n, sum(cast(cast(value AS string) AS int)) AS total FROM source_view WHERE partition >= 0").first()
    assert (row.n, row.total) == (100, 4950)
    fill(100, 110)
    assert spark.sql("SELECT count(*) AS n FROM source_view").first().n == 100, "a view is a snapshot too"
    spark.catalog.dropTempView("source_view")


def test_a_table_in_sql_needs_its_options_at_the_query(spark: Any, broker: Broker, topic: str, fill: Fill) -> None:
    """A table in SQL needs its options in the query, because Spark 4.3 stores a table's options but does not pass them to sources in
    Python.
    """
    options = f"`kafka.bootstrap.servers` '{broker.direct_server}', subscribe '{topic}'"
    spark.sql(f"CREATE TABLE source_table USING ottla OPTIONS ({options})")
    try:
        fill(0, 20)
        query = "SELECT count(*) AS n FROM source_table"
        assert spark.sql(f"{query} WITH ({options.replace(' ', '=', 1).replace('subscribe ', 'subscribe=')})").first().n == 20
        assert "CREATE TEMPORARY VIEW ... USING ottla OPTIONS" in failure(spark.sql(query).collect)
    finally:
        spark.sql("DROP TABLE source_table")


def test_a_stream_reads_each_record_once_over_restarts(
    spark: Any, broker: Broker, topic: str, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    batches = Batches(tmp_path / "batches")
    rows = stream(spark, broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40").load()
    fill(0, 100)
    query = batches.run(rows, checkpoint)
    assert batches.values() == list(range(100))
    assert all(len(found) <= 40 for found in batches.rows().values())
    assert batches.rows()[0] == [], "the first batch covers nothing, so that its start is in the offset log"
    progress = query.lastProgress["sources"][0]
    latest = json.loads(progress["latestOffset"]) if isinstance(progress["latestOffset"], str) else progress["latestOffset"]
    assert sum(latest[topic].values()) == 100
    readable = readable_progress(query.lastProgress)["sources"][0]
    assert (readable["description"], readable["metrics"]["maxOffsetsBehindLatest"]) == (f"ottla[{topic}]", "0")
    fill(100, 150)
    batches.run(rows, checkpoint)
    assert batches.values() == list(range(150))


def test_a_replayed_batch_has_the_same_records(
    spark: Any, broker: Broker, topic: str, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    batches = Batches(tmp_path / "batches")
    rows = stream(spark, broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40").load()
    fill(0, 100)
    batches.run(rows, checkpoint)
    ran = batches.rows()
    last = max(ran)
    for name in (f"{last}", f".{last}.crc"):
        (Path(checkpoint) / "commits" / name).unlink(missing_ok=True)
    (batches.directory / f"{last}.json").unlink()
    fill(100, 110)
    batches.run(rows, checkpoint)
    again = batches.rows()
    assert sorted(again[last]) == sorted(ran[last])
    assert batches.values() == list(range(110))


def test_without_its_checkpoint_a_query_starts_at_the_groups_offsets(
    spark: Any, broker: Broker, topic: str, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    fill(0, 100)
    with connect(broker.direct_server) as client:
        committed = {TopicPartition(topic, partition): 5 for partition in range(3)}
        client.commit(f"{topic}-group", committed)
    batches = Batches(tmp_path / "batches")
    batches.run(stream(spark, broker, subscribe=topic, group=f"{topic}-group", startingOffsets="latest").load(), checkpoint)
    stored = {int(record.value or b"") for record in broker.records(topic) if record.offset >= 5}
    assert set(batches.values()) == stored
    assert len(batches.values()) == 85


def test_deleted_records_stop_a_query_with_one_line(
    spark: Any, broker: Broker, topic: str, fill: Fill, checkpoint: str, tmp_path: Path
) -> None:
    rows = stream(spark, broker, assign=f'{{"{topic}":[0]}}', startingOffsets="earliest").load()
    batches = Batches(tmp_path / "batches")
    batches.run(rows, checkpoint)
    fill(0, 100)
    with connect(broker.direct_server) as client:
        client.delete_records({TopicPartition(topic, 0): 5})
    message = failure(lambda: batches.run(rows, checkpoint))
    assert f"DataLossError: offset 0 of {topic}-0 no longer exists, the log begins at 5" in message
    assert "failOnDataLoss=false" in message
    lenient = stream(spark, broker, assign=f'{{"{topic}":[0]}}', failOnDataLoss="false").load()
    batches.run(lenient, checkpoint)
    assert sorted(batches.values()) == sorted(int(record.value or b"") for record in broker.records(topic) if record.partition == 0)
    shutil.rmtree(checkpoint)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "no-such-topic"}, "subscribe: UNKNOWN_TOPIC_OR_PARTITION: topic 'no-such-topic' not found"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "OptionError: startingoffset: no such option; did you mean startingOffsets?"),
    ],
)
def test_bad_options_give_one_line(spark: Any, broker: Broker, given: dict[str, str], message: str) -> None:
    found = failure(reader(spark, broker, **given).load)
    assert message in found
    assert "Traceback" not in found


@pytest.mark.parametrize(
    ("given", "schema", "message"),
    [
        ({"endingOffsets": "latest"}, "value BINARY", "OptionError: endingOffsets: only a batch read ends"),
        ({}, "value STRING", "OptionError: schema: the columns are struct<key:binary,"),
    ],
)
def test_a_stream_that_makes_no_sense_stops_with_one_line(
    spark: Any, broker: Broker, topic: str, checkpoint: str, given: dict[str, str], schema: str, message: str
) -> None:
    rows = stream(spark, broker, subscribe=topic, **given).schema(schema).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    found = failure(lambda: run(query))
    assert message in found
    assert "Traceback" not in found.split("JVM stacktrace")[0]
