"""The sink under Spark: batch writes and exactly-once streams, checked by a stock client; errors that a user can read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client import TopicPartition, connect, partition_for_key
from ottla.spark.offset_json import read_offsets
from ottla.spark.spool import spool_root
from ottla.testing.broker import Broker
from tests.spark_jobs.queries import (
    failure,
    forget_last_commit,
    lag,
    numbers_of_batches,
    reader,
    run,
    stock_records,
    stock_values,
    stream,
    stream_writer,
    write_numbers,
    writer,
)


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Makes a source of three partitions and a sink of four."""
    name = f"{abs(hash(request.node.name)):x}"
    return broker.create_topic(f"in-{name}", partitions=3), broker.create_topic(f"out-{name}", partitions=4)


@pytest.fixture(autouse=True)
def no_spool_is_left(topics: tuple[str, str], tmp_path: Path) -> Iterator[None]:
    """Checks that files of tasks' output are removed at the end of every batch, whether it succeeds or fails."""
    before = set(spool_root().iterdir())
    yield
    left = {path for path in set(spool_root().iterdir()) - before if path.is_dir() and any(path.glob("*-*"))}
    assert left == set()


def copy(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> Any:
    """Returns a query that copies the source to the sink, a hundred offsets in each batch."""
    source, sink = topics
    rows = stream(spark, broker, subscribe=source, group=f"g-{sink}", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    return stream_writer(rows.load().select("key", "value"), broker, checkpoint, topic=sink, group=f"g-{sink}")


def transactions_of(broker: Broker, topic: str) -> int:
    """Returns how many transactions wrote to a topic, from the markers in its partitions."""
    with connect(broker.direct_server) as client:
        found = set()
        for partition in client.describe_topic(topic).partitions:
            place = TopicPartition(topic, partition.partition)
            end = client.list_offsets({place: -1})[place].offset
            if end:
                for fetched in client.read(place, 0, end):
                    found |= {(header.producer_id, header.producer_epoch) for header, _ in fetched.batches}
        return len(found)


# Batch writes


@pytest.mark.parametrize("way", ["auto", "messages", "staged"])
def test_a_batch_write_is_one_transaction_by_kafkas_partitioner(spark: Any, broker: Broker, topics: tuple[str, str], way: str) -> None:
    before = set(spool_root().iterdir())
    rows = spark.range(5000).repartition(3).selectExpr("cast(id AS string) AS key", "repeat(cast(id AS string), 5) AS value")
    writer(rows, broker, topic=topics[1], taskOutput=way).save()
    assert set(spool_root().iterdir()) <= before, "no directory is left"
    found = stock_records(broker, topics[1])
    assert sorted(int(message.key()) for message in found) == list(range(5000))
    assert all(message.value() == message.key() * 5 for message in found)
    assert all(message.partition() == partition_for_key(message.key(), 4) for message in found)
    assert transactions_of(broker, topics[1]) == 1


def test_columns_of_a_batch_write(spark: Any, broker: Broker, topics: tuple[str, str]) -> None:
    rows = spark.sql(
        f"""SELECT CAST(CAST(id AS string) AS binary) AS value, '{topics[0]}' AS topic, CAST(id % 2 AS int) AS partition,
            array(named_struct('key', 'h', 'value', CAST('x' AS binary))) AS headers, 'extra' AS other FROM range(10)
            UNION ALL SELECT NULL, '{topics[1]}', 3, NULL, 'extra'"""
    )
    writer(rows, broker).save()
    found = stock_records(broker, topics[0])
    assert [message.partition() for message in found] == [0] * 5 + [1] * 5
    assert all(message.headers() == [("h", b"x")] and message.key() is None for message in found)
    (tombstone,) = stock_records(broker, topics[1])
    assert (tombstone.partition(), tombstone.value(), tombstone.headers()) == (3, None, None)


def test_the_option_topic_goes_before_the_column(spark: Any, broker: Broker, topics: tuple[str, str]) -> None:
    source, sink = topics
    write_numbers(broker, source, range(10))
    writer(reader(spark, broker, subscribe=source, includeHeaders="true").load(), broker, topic=sink).save()
    assert stock_values(broker, sink) == stock_values(broker, source) == list(range(10))
    assert all(message.headers() == [("n", message.value())] for message in stock_records(broker, sink))


@pytest.mark.parametrize(
    ("query", "given", "message"),
    [
        ("SELECT 1 AS value", {"topic": "*"}, "OutputError: column value is of type int; cast it to string or binary"),
        ("SELECT 'x' AS value, CAST(NULL AS string) AS topic", {}, "OutputError: column 'topic' must not be null; nulls: 1, rows: 1"),
        ("SELECT 'x' AS value, 'no-such' AS topic", {}, "PipelineError: topic: UNKNOWN_TOPIC_OR_PARTITION: topic 'no-such' not found"),
        ("SELECT 'x' AS value, 4 AS partition", {"topic": "*"}, "column 'partition': there is no partition 4 of topic '*', which has 4"),
        ("SELECT repeat('x', 2000000) AS value", {"topic": "*"}, "raise kafka.max.request.size and the topic's max.message.bytes"),
        ("SELECT repeat(uuid(), 20) AS value FROM range(5000)", {"topic": "*", "maxOutputBytes": "9999"}, "maxOutputBytes=9999: "),
    ],
)
def test_rows_that_cannot_be_written(
    spark: Any, broker: Broker, topics: tuple[str, str], query: str, given: dict[str, str], message: str
) -> None:
    given = {name: value.replace("*", topics[1]) for name, value in given.items()}
    found = failure(writer(spark.sql(query), broker, **given).save)
    assert message.replace("*", topics[1]) in found
    assert "Traceback" not in found
    assert stock_records(broker, topics[1]) == []


def test_a_view_and_a_table_in_sql_are_written_to(spark: Any, broker: Broker, topics: tuple[str, str]) -> None:
    given, assigned = (f"`kafka.bootstrap.servers`{sign}'{broker.direct_server}', topic{sign}'{topics[1]}'" for sign in " =")
    view = "CREATE TEMPORARY VIEW sink_view {} USING ottla OPTIONS ({})"
    message = failure(lambda: spark.sql(view.format("", given)))
    assert "a view to write to names its columns: CREATE TEMPORARY VIEW ... (key STRING, value STRING) USING ottla" in message
    spark.sql(view.format("(key STRING, value STRING)", given))
    spark.sql("CREATE TABLE sink_table (key STRING, value STRING) USING ottla")
    try:
        spark.sql("INSERT INTO sink_view SELECT 'view', cast(id AS string) FROM range(5)")
        assert "INSERT INTO the_table WITH (...) SELECT ..." in failure(lambda: spark.sql("INSERT INTO sink_table SELECT 'table', '9'"))
        spark.sql(f"INSERT INTO sink_table WITH ({assigned}) SELECT 'table', '9'")
    finally:
        spark.catalog.dropTempView("sink_view")
        spark.sql("DROP TABLE sink_table")
    found = sorted((message.key(), message.value()) for message in stock_records(broker, topics[1]))
    assert found == [(b"table", b"9")] + [(b"view", b"%d" % number) for number in range(5)]


def test_a_topic_is_not_overwritten(spark: Any, broker: Broker, topics: tuple[str, str]) -> None:
    rows = spark.sql("SELECT 'x' AS value")
    assert "mode: a topic cannot be overwritten" in failure(writer(rows, broker, topic=topics[1]).mode("overwrite").save)


def test_a_value_that_the_topic_does_not_take(spark: Any, broker: Broker, topics: tuple[str, str]) -> None:
    small = broker.create_topic(f"small-{topics[1]}", max_message_bytes="1000")
    rows = spark.sql("SELECT repeat(uuid(), 50) AS value")
    message = failure(writer(rows, broker, topic=small, compression="none").save)
    assert "MESSAGE_TOO_LARGE" in message and "make values smaller, or raise the topic's max.message.bytes" in message
    assert stock_records(broker, small) == []
    many = spark.range(100).selectExpr("repeat(cast(id AS string), 10) AS value")
    writer(many, broker, topic=small, compression="none").save()
    assert len(stock_records(broker, small)) == 100


# Streams


def test_a_copy_has_each_record_once_over_restarts(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> None:
    write_numbers(broker, topics[0], range(500))
    query = run(copy(spark, broker, topics, checkpoint))
    assert sum(numbers_of_batches(query)) == 500
    assert max(numbers_of_batches(query)) <= 100
    assert stock_values(broker, topics[1]) == list(range(500))
    assert lag(broker, f"g-{topics[1]}", topics[0]) == 0
    write_numbers(broker, topics[0], range(500, 650))
    assert lag(broker, f"g-{topics[1]}", topics[0]) == 150
    run(copy(spark, broker, topics, checkpoint))
    assert stock_values(broker, topics[1]) == list(range(650))
    assert lag(broker, f"g-{topics[1]}", topics[0]) == 0


def test_a_batch_that_is_replayed_is_not_written_again(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> None:
    write_numbers(broker, topics[0], range(250))
    run(copy(spark, broker, topics, checkpoint))
    written = transactions_of(broker, topics[1])
    forget_last_commit(checkpoint)
    write_numbers(broker, topics[0], range(250, 300))
    run(copy(spark, broker, topics, checkpoint))
    assert stock_values(broker, topics[1]) == list(range(300))
    assert transactions_of(broker, topics[1]) == written + 1


def test_without_its_checkpoint_a_query_loses_and_repeats_nothing(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str
) -> None:
    write_numbers(broker, topics[0], range(250))
    run(copy(spark, broker, topics, checkpoint))
    shutil.rmtree(checkpoint)
    write_numbers(broker, topics[0], range(250, 300))
    run(copy(spark, broker, topics, checkpoint))
    assert stock_values(broker, topics[1]) == list(range(300))


def test_an_old_checkpoint_stops_the_query(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str, tmp_path: Path) -> None:
    write_numbers(broker, topics[0], range(100), partition=0)
    run(copy(spark, broker, topics, checkpoint))
    old = tmp_path / "old"
    shutil.copytree(checkpoint, old)
    for first, end in ((100, 150), (150, 180)):
        write_numbers(broker, topics[0], range(first, end), partition=0)
        run(copy(spark, broker, topics, checkpoint))
    write_numbers(broker, topics[0], range(180, 230), partition=0)
    message = failure(lambda: run(copy(spark, broker, topics, str(old))))
    assert "OffsetConflictError" in message and "Traceback" not in message.split("JVM stacktrace")[0]
    assert all(offset in message for offset in ("180", "100", "200")), "committed offset, start and end of the batch are named"
    assert stock_values(broker, topics[1]) == list(range(180))


def test_a_checkpoint_of_an_older_version_is_gone_on_with(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> None:
    """A checkpoint of an older version can be continued. Its offsets have another form, which Spark treats as new offsets, so it runs at
    most one empty batch.
    """
    write_numbers(broker, topics[0], range(150))
    run(copy(spark, broker, topics, checkpoint))
    as_of_an_older_version(checkpoint, topics[0])
    assert numbers_of_batches(run(copy(spark, broker, topics, checkpoint))) in ([], [0])
    assert stock_values(broker, topics[1]) == list(range(150))
    as_of_an_older_version(checkpoint, topics[0])
    forget_last_commit(checkpoint)
    write_numbers(broker, topics[0], range(150, 170))
    run(copy(spark, broker, topics, checkpoint))
    assert stock_values(broker, topics[1]) == list(range(170))
    assert lag(broker, f"g-{topics[1]}", topics[0]) == 0


def as_of_an_older_version(checkpoint: str, topic: str) -> None:
    """Rewrites a query's offset log in its earlier form, before offsets had the form of the Kafka connector."""
    for path in (Path(checkpoint) / "offsets").iterdir():
        if path.suffix == ".crc":
            path.unlink()
            continue
        *head, line = path.read_text().splitlines()
        known = read_offsets(line)
        assert known is not None
        offsets = {topic: {str(one.partition): at for one, at in known.offsets.items()}}
        path.write_text("\n".join([*head, json.dumps({"group": known.group, "offsets": offsets, "ids": known.topic_ids})]))


@pytest.mark.parametrize("is_named", [True, False])
def test_a_query_of_the_kafka_connector_of_which_only_the_format_is_changed(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str, is_named: bool
) -> None:
    """A query of the Kafka connector runs after changing only its format. Neither side has a group, so the position is only in the
    checkpoint, and each row is still written once.
    """
    source, sink = topics
    given = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100", "kafka.enable.idempotence": "true"}
    rows = stream(spark, broker, **given).load().selectExpr("key", "value", f"'{sink}' AS topic")
    option = {"topic": sink} if is_named else {}
    for first, end in ((0, 250), (250, 300)):
        write_numbers(broker, source, range(first, end))
        run(stream_writer(rows, broker, checkpoint, **option))
        forget_last_commit(checkpoint)
        run(stream_writer(rows, broker, checkpoint, **option))
        assert stock_values(broker, sink) == list(range(end))
    with_group = stream(spark, broker, **given, group=f"g-{sink}").load().select("key", "value")
    found = failure(lambda: run(stream_writer(with_group, broker, f"{checkpoint}-2", topic=sink)))
    assert f"group: the sink has none, the query's sources of format ottla have 'g-{sink}'; set the option in the sink too" in found
    assert stock_values(broker, sink) == list(range(300))


def test_a_checkpoint_that_the_sink_cannot_read(spark: Any, broker: Broker, topics: tuple[str, str], tmp_path: Path) -> None:
    """The sink cannot read the checkpoint here, because its location is not an option of the sink. The source passes the range of each
    batch through a file on the driver's host.
    """
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        for first in (0, 250):
            write_numbers(broker, topics[0], range(first, first + 250))
            query = copy(spark, broker, topics, "").queryName("elsewhere")
            run(query)
            assert stock_values(broker, topics[1]) == list(range(first + 250))
            forget_last_commit(str(tmp_path / "checkpoints" / "elsewhere"))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
