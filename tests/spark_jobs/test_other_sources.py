"""Streams from other sources than topics are written exactly once as well, also where only a column says to which topics."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from ottla.client import TopicPartition, connect
from ottla.testing.broker import Broker
from tests.spark_jobs.queries import WAIT_S, failure, run, stock_values, stream_writer

TOPIC = "concat('{name}-', cast(cast(value AS int) % 2 AS string)) AS topic"


@pytest.fixture
def name(broker: Broker) -> str:
    """The group, and what the names of both topics begin with."""
    name = f"out-{uuid.uuid4().hex[:12]}"
    for number in range(2):
        broker.create_topic(f"{name}-{number}")
    return name


def counts(broker: Broker, group: str) -> dict[TopicPartition, int]:
    with connect(broker.direct_server) as client:
        return {partition: found.offset for partition, found in client.committed(group).items()}


def forget_commit(checkpoint: str) -> None:
    """Takes the last batch out of the commit log, as a crash before it leaves it."""
    commits = Path(checkpoint) / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for left in (f"{last}", f".{last}.crc"):
        (commits / left).unlink(missing_ok=True)


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
        forget_commit(checkpoint)
        run(query(checkpoint))
    assert [stock_values(broker, f"{name}-{number}") for number in range(2)] == [list(range(0, 30, 2)), list(range(1, 30, 2))]
    assert counts(broker, name) == {TopicPartition(f"{name}-0", 0): 3}
    message = failure(lambda: run(query(f"{checkpoint}-new")))
    assert f"group: '{name}' has the last batch of another query" in message and "a group of its own" in message
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
            deadline = time.monotonic() + WAIT_S
            while (query.lastProgress or {"batchId": -1})["batchId"] < batch_id:
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, "the batches take too long"
                time.sleep(0.1)
        finally:
            query.stop()

    run_until(4)
    forget_commit(checkpoint)
    run_until(8)
    found = sorted(value for number in range(2) for value in stock_values(broker, f"{name}-{number}"))
    assert found == list(range(21, found[-1] + 1)) and found[-1] >= 89
    assert set(counts(broker, name)) == {TopicPartition(f"{name}-0", 0)}
