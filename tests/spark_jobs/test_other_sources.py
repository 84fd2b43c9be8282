"""Streams from other sources than topics are written exactly once too, also if only a column names the topics."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from ottla.client import TopicPartition, connect
from ottla.testing.broker import Broker
from tests.clients.broker_process import eventually
from tests.spark_jobs.queries import WAIT_S, failure, forget_last_commit, run, stock_values, stream_writer

TOPIC = "concat('{name}-', cast(cast(value AS int) % 2 AS string)) AS topic"


@pytest.fixture
def name(broker: Broker) -> str:
    """The name of the group, which is also the prefix of both topics' names."""
    name = f"out-{uuid.uuid4().hex[:12]}"
    for number in range(2):
        broker.create_topic(f"{name}-{number}")
    return name


def counts(broker: Broker, group: str) -> dict[TopicPartition, int]:
    with connect(broker.direct_server) as client:
        return {partition: found.offset for partition, found in client.committed(group).items()}


def has_run(query: Any, batch_id: int) -> bool:
    assert query.isActive, query.exception()
    progress = query.lastProgress
    return progress is not None and progress["batchId"] >= batch_id


def test_files_go_to_the_topics_that_a_column_names_once(
    spark: Any, broker: Broker, name: str, checkpoint: str, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()

    def query(where: str, group: str = name) -> Any:
        rows = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(files))
        return stream_writer(rows.selectExpr("value", TOPIC.format(name=name)), broker, where, group=group)

    for number in range(3):
        (files / f"{number}.txt").write_text("".join(f"{10 * number + line}\n" for line in range(10)))
        run(query(checkpoint))
        forget_last_commit(checkpoint)
        run(query(checkpoint))
    assert [stock_values(broker, f"{name}-{number}") for number in range(2)] == [list(range(0, 30, 2)), list(range(1, 30, 2))]
    assert counts(broker, name) == {TopicPartition(f"{name}-0", 0): 3}
    message = failure(lambda: run(query(f"{checkpoint}-new")))
    assert f"group: '{name}' has the last batch of another query" in message and "use a new group" in message
    run(query(f"{checkpoint}-new", f"{name}-new"))
    assert counts(broker, f"{name}-new") == {TopicPartition(f"{name}-0", 0): 3}


def test_a_source_that_makes_rows_goes_to_the_topics_that_a_column_names_once(
    spark: Any, broker: Broker, name: str, checkpoint: str
) -> None:
    def run_until(batch_id: int) -> None:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
        named = rows.selectExpr("cast(value AS string) AS value", TOPIC.format(name=name)).where("value > 20")
        query = stream_writer(named, broker, checkpoint, group=name).trigger(processingTime="0 seconds").start()
        try:
            eventually(lambda: has_run(query, batch_id), WAIT_S)
        finally:
            query.stop()

    run_until(4)
    forget_last_commit(checkpoint)
    run_until(8)
    found = sorted(value for number in range(2) for value in stock_values(broker, f"{name}-{number}"))
    assert found == list(range(21, found[-1] + 1)) and found[-1] >= 89
    assert set(counts(broker, name)) == {TopicPartition(f"{name}-0", 0)}
