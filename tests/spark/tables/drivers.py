"""Drivers of a pipeline into a table, without Spark: each executes a batch as tasks would, and commits it as Spark's driver would."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from ottla.client import TopicPartition
from ottla.spark.decision import BatchRange, PlannedBatch
from ottla.spark.tables.commit import Execution, commit_execution
from ottla.spark.tables.data_files import DataFile, FilePlan, TaskFiles
from ottla.spark.tables.formats import open_log
from ottla.spark.tables.position import TableCommit
from ottla.spark.tables.storage import TableFiles, explained
from ottla.spark.tables.table import Table
from ottla.spark.tables.table_log import TableLog

GROUP, TOPIC = "numbers", "in"
COLUMNS = pa.schema([("number", pa.int64()), ("part", pa.string())])


def batch_range(start: int, end: int, topic: str = TOPIC) -> BatchRange:
    return BatchRange({TopicPartition(topic, 0): start}, {TopicPartition(topic, 0): end})


def delta_table(directory: Path, **options: Any) -> Table:
    return Table(str(directory / "table"), **options)


def iceberg_table(directory: Path, **options: Any) -> Table:
    return Table(str(directory / "table"), format="iceberg", catalog={"type": "sql", "uri": f"sqlite:///{directory}/catalog.db"}, **options)


def iceberg(table: Table) -> Any:
    """The table as PyIceberg loads it."""
    return load_catalog("default", **table.catalog).load_table(table.identifier)


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """The rows of a table in order, as the format's library reads them."""
    found = DeltaTable(table.uri).to_pyarrow_table() if table.format == "delta" else iceberg(table).scan().to_arrow()
    return sorted(zip(*found.to_pydict().values(), strict=True))


class Driver:
    """A driver with a log of its own. `query` is the id of its checkpoint."""

    def __init__(self, table: Table, query: str = "query", group: str = GROUP, topic: str = TOPIC) -> None:
        self.table, self.query, self.group, self.topic = table, query, group, topic
        self.log: TableLog = open_log(table)
        self.files = TableFiles(table)

    def execute(self, batch_id: int, numbers: Sequence[int], columns: pa.Schema = COLUMNS) -> Execution:
        """Writes the files of a batch."""
        planned = self.log.prepare(columns)
        place = f"query-{self.query}/batch-{batch_id}"
        directory = f"{self.log.data_directory}/{place}".lstrip("/")
        plan = FilePlan(planned, self.log.partition_by, directory, self.table.file_bytes, "zstd", self.log.has_partition_columns)
        with explained(self.table):
            return Execution(secrets.token_hex(8), directory, self._files(plan, numbers, columns), planned)

    def _files(self, plan: FilePlan, numbers: Sequence[int], columns: pa.Schema) -> list[DataFile]:
        task = TaskFiles(self.files, plan, 0)
        values = {"number": list(numbers), "part": [f"p {number % 3}/%" for number in numbers]}
        task.add(pa.RecordBatch.from_pydict({name: values.get(name, [None] * len(numbers)) for name in columns.names}, columns))
        return task.finish()

    def commit(self, batch_id: int, execution: Execution, start: int, end: int) -> TableCommit | None:
        batch = PlannedBatch(self.group, self.query, batch_id, batch_range(start, end, self.topic), True, table=self.table.uri)
        return commit_execution(self.log, self.files, batch, execution)

    def run(self, batch_id: int, start: int, end: int) -> TableCommit | None:
        """Executes and commits a batch with the numbers of its range."""
        return self.commit(batch_id, self.execute(batch_id, range(start, end)), start, end)
