"""Pipelines that end in a Delta table, on a real Spark and a broker process. deltalake, DuckDB, Polars and Spark read the tables back."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable

import ottla.client
from ottla.client import Client
from ottla.spark import Pipeline, Table
from ottla.spark.batch_range import find_last_batch, find_query_id
from ottla.spark.errors import OptionError, PipelineError
from ottla.spark.progress import read_state
from ottla.spark.runner import run_pipelines
from ottla.spark.tables.storage import storage_options
from ottla.spark.tables.verify import verify_table
from ottla.testing.broker import Broker
from tests.spark.tables.drivers import iceberg, iceberg_table
from tests.spark.tables.object_store import BUCKET, ObjectStore
from tests.spark_jobs.queries import forget_last_commit, lag, write_numbers


class Numbers:
    """A topic of numbers, and a pipeline that copies them into a table."""

    def __init__(self, client: Client, broker: Broker, session: Any, directory: Path) -> None:
        name = uuid.uuid4().hex[:12]
        self.client, self.broker, self.session, self.directory = client, broker, session, directory
        self.group, self.topic = f"group-{name}", broker.create_topic(f"numbers-{name}", 2)
        self.location = directory / "table"
        self.pipeline = Pipeline(
            group=self.group,
            source=self.topic,
            sink=Table(str(self.location)),
            transform=as_numbers,
            bootstrap=broker.get_bootstrap_server(),
            checkpoint=str(directory / "checkpoint"),
            trigger="available-now",
        )

    def write(self, *numbers: int) -> None:
        write_numbers(self.broker, self.topic, numbers)

    def run(self, **changes: Any) -> None:
        """Runs the pipeline until it has read all current records."""
        run_pipelines([replace(self.pipeline, **changes)], self.session)

    def failure(self, **changes: Any) -> str:
        with pytest.raises(PipelineError) as caught:
            self.run(**changes)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.location)

    def numbers(self) -> list[int]:
        return sorted(self.delta.to_pyarrow_table(columns=["number"])["number"].to_pylist())

    def files(self) -> set[str]:
        """Returns all Parquet files of the table's directory, whether the log names them or not."""
        return {str(path.relative_to(self.location)) for path in self.location.rglob("*.parquet") if "_delta_log" not in path.parts}

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.pipeline.checkpoint_location)


def as_numbers(rows: Any) -> Any:
    return rows.selectExpr("cast(cast(value AS string) AS bigint) AS number", "partition")


@pytest.fixture
def numbers(spark: Any, broker: Broker, tmp_path: Path) -> Iterator[Numbers]:
    with ottla.client.connect(broker.get_bootstrap_server()) as client:
        yield Numbers(client, broker, spark, tmp_path)


def test_a_table_has_each_row_once_and_the_group_its_offsets(numbers: Numbers) -> None:
    numbers.write(*range(10))
    numbers.run()
    assert numbers.numbers() == list(range(10))
    assert lag(numbers.broker, numbers.group, numbers.topic) == 0
    numbers.write(*range(10, 15))
    numbers.run()
    assert numbers.numbers() == list(range(15))
    assert lag(numbers.broker, numbers.group, numbers.topic) == 0
    state = read_state(numbers.client, numbers.group)
    assert state is not None and state.restarts == 1


def test_duckdb_polars_and_spark_read_the_same_rows(numbers: Numbers) -> None:
    numbers.write(*range(10))
    numbers.run(sink=Table(str(numbers.location), partition_by=["partition"]))
    wanted = list(range(10))
    dataset = numbers.delta.to_pyarrow_dataset()
    found = duckdb.from_arrow(dataset).order("number").fetchall()
    assert [number for number, _ in found] == wanted
    frame = polars.read_delta(str(numbers.location))
    assert sorted(frame["number"]) == wanted and set(frame["partition"]) == {0, 1}
    by_spark = numbers.session.read.option("basePath", str(numbers.location)).parquet(*numbers.delta.file_uris())
    assert sorted(row.number for row in by_spark.collect()) == wanted


def test_a_batch_that_runs_again_finds_its_commit(numbers: Numbers) -> None:
    numbers.write(*range(10))
    numbers.run()
    version, files = numbers.delta.version(), numbers.files()
    forget_last_commit(numbers.pipeline.checkpoint_location)
    numbers.run()
    assert (numbers.delta.version(), numbers.files(), numbers.numbers()) == (version, files, list(range(10)))


def test_a_lost_checkpoint_costs_nothing(numbers: Numbers) -> None:
    numbers.write(*range(10))
    numbers.run()
    numbers.forget_checkpoint()
    numbers.write(*range(10, 15))
    numbers.run()
    assert numbers.numbers() == list(range(15))


def test_the_table_decides_if_the_group_was_left_behind(numbers: Numbers) -> None:
    """If the group is behind the table, the table's position decides. That is the state after a driver died between the two commits and the
    checkpoint was lost.
    """
    numbers.write(*range(10))
    numbers.run()
    before = numbers.client.committed(numbers.group)
    numbers.write(*range(10, 15))
    numbers.run()
    numbers.client.commit(numbers.group, before)
    numbers.forget_checkpoint()
    numbers.write(*range(15, 20))
    numbers.run()
    assert numbers.numbers() == list(range(20))
    assert lag(numbers.broker, numbers.group, numbers.topic) == 0


def test_an_old_checkpoint_is_refused(numbers: Numbers) -> None:
    numbers.write(*range(5))
    numbers.run()
    old = numbers.directory / "old"
    shutil.copytree(numbers.pipeline.checkpoint_location, old)
    numbers.write(*range(5, 10))
    numbers.run()
    numbers.write(*range(10, 15))
    failed = numbers.failure(checkpoint=str(old))
    assert failed.startswith("OffsetConflictError: checkpoint: batch ") and str(numbers.location) in failed
    assert numbers.numbers() == list(range(10))
    numbers.run()
    assert numbers.numbers() == list(range(15))


def test_a_failed_task_leaves_nothing_behind(numbers: Numbers) -> None:
    def fails(rows: Any) -> Any:
        def check(batches: Any) -> Any:
            for batch in batches:
                yield batch
                if 7 in batch.column("number").to_pylist():
                    raise RuntimeError("seven")

        return as_numbers(rows).mapInArrow(check, "number bigint, partition int")

    numbers.write(*range(10))
    numbers.failure(transform=fails)
    assert numbers.numbers() == []
    left = numbers.files()  # from a task that Spark cancelled when the other one failed; the commit of the batch removes the file
    numbers.run()
    assert numbers.numbers() == list(range(10)) and not left & numbers.files()


def test_files_of_killed_attempts_are_removed_when_their_batch_is_committed(numbers: Numbers) -> None:
    numbers.write(*range(10))
    numbers.run()
    checkpoint = numbers.pipeline.checkpoint_location
    leftover = f"query-{find_query_id(checkpoint)}/batch-{(find_last_batch(checkpoint) or 0) + 1}/part-00000-00000000deadbeef.parquet"
    (numbers.location / leftover).parent.mkdir()
    shutil.copy(numbers.location / min(numbers.files()), numbers.location / leftover)
    assert numbers.numbers() == list(range(10))  # no reader gets its rows
    numbers.write(*range(10, 15))
    numbers.run()
    assert leftover not in numbers.files() and numbers.numbers() == list(range(15))


def test_a_query_with_windows_writes_each_window_once(numbers: Numbers) -> None:
    def windows(rows: Any) -> Any:
        from pyspark.sql.functions import window

        moments = rows.selectExpr("timestamp_seconds(cast(cast(value AS string) AS bigint)) AS at")
        counted = moments.withWatermark("at", "1 second").groupBy(window("at", "10 seconds")).count()
        return counted.selectExpr("unix_seconds(window.start) AS number", "count AS rows")

    numbers.write(*range(25), 1000)
    numbers.run(transform=windows)
    forget_last_commit(numbers.pipeline.checkpoint_location)
    numbers.run(transform=windows)
    assert sorted(zip(*numbers.delta.to_pyarrow_table().to_pydict().values(), strict=True)) == [(0, 10), (10, 10), (20, 5)]


def test_columns_are_added_only_on_request(numbers: Numbers) -> None:
    def with_text(rows: Any) -> Any:
        return as_numbers(rows).selectExpr("*", "cast(number AS string) AS text")

    numbers.write(1)
    numbers.run()
    numbers.write(2)
    assert numbers.failure(transform=with_text).startswith("OutputError: add_columns: the table has no column text")
    numbers.run(transform=with_text, sink=Table(str(numbers.location), add_columns=True))
    assert sorted(numbers.delta.to_pyarrow_table().to_pydict()["text"], key=str) == ["2", None]
    numbers.write(3)
    numbers.run()  # a column that the rows lack is null
    assert sorted(numbers.delta.to_pyarrow_table().to_pydict()["text"], key=str) == ["2", None, None]


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (lambda rows: as_numbers(rows).selectExpr("cast(number AS int) AS number"), "column number is of type int64 in the table"),
        (lambda rows: as_numbers(rows).selectExpr("number AS Number", "partition"), "column Number is called number in the table"),
        (lambda rows: as_numbers(rows).selectExpr("*", "interval 1 day AS span"), "column span is of type interval"),
        (lambda rows: as_numbers(rows).selectExpr("*", "1 AS `a b`"), "column 'a b' has a character"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_one_line(numbers: Numbers, transform: Callable[[Any], Any], said: str) -> None:
    numbers.write(1)
    numbers.run()
    numbers.write(2)
    assert said in numbers.failure(transform=transform)
    numbers.run()
    assert numbers.numbers() == [1, 2]


def test_a_table_of_others_that_needs_more_than_rows_is_refused(numbers: Numbers) -> None:
    numbers.write(1)
    numbers.run()
    numbers.delta.alter.add_constraint({"positive": "number > 0"})
    numbers.write(2)
    assert "delta.constraints.positive" in numbers.failure()


def test_options_of_topics_are_refused(numbers: Numbers) -> None:
    with pytest.raises(OptionError, match="output_mode"):
        replace(numbers.pipeline, output_mode="update")
    with pytest.raises(OptionError, match="sink_options: compression"):
        replace(numbers.pipeline, sink_options={"compression": "zstd"})


def test_an_iceberg_table_is_written_in_the_same_way(numbers: Numbers) -> None:
    table = iceberg_table(numbers.directory, partition_by=["partition"], add_columns=True)
    numbers.write(*range(10))
    numbers.run(sink=table)
    numbers.forget_checkpoint()
    numbers.write(*range(10, 15))
    numbers.run(sink=table, transform=lambda rows: as_numbers(rows).selectExpr("*", "array(cast(number AS string)) AS texts"))
    found = iceberg(table).scan().to_arrow()
    assert sorted(found["number"].to_pylist()) == list(range(15))
    assert sorted(texts for texts in found["texts"].to_pylist() if texts) == [[str(number)] for number in range(10, 15)]
    assert duckdb.from_arrow(found).aggregate("sum(number)").fetchall() == [(sum(range(15)),)]
    proof = verify_table(numbers.client, numbers.group, table)
    assert proof.is_proved, proof.faults
    assert lag(numbers.broker, numbers.group, numbers.topic) == 0


def test_a_table_in_an_object_store(numbers: Numbers) -> None:
    store = ObjectStore()
    try:
        table = Table(f"s3://{BUCKET}/numbers", partition_by=["partition"], storage=store.storage)
        numbers.write(*range(10))
        numbers.run(sink=table)
        store.set_faults(("PUT .*parquet", 503, 1), ("PUT .*_delta_log", 0, 1))
        numbers.write(*range(10, 20))
        numbers.run(sink=table)
        assert store.hits() == [1, 1]
        found = DeltaTable(table.uri, storage_options=storage_options(table)).to_pyarrow_table()
        assert sorted(found["number"].to_pylist()) == list(range(20))
        assert verify_table(numbers.client, numbers.group, table).is_proved
        store.set_faults(("PUT ", 403, 1_000))
        numbers.write(20)
        assert table.uri in numbers.failure(sink=table)
        store.set_faults()
        numbers.run(sink=table)
        assert verify_table(numbers.client, numbers.group, table).rows == 21
    finally:
        store.stop()
