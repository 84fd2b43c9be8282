"""Drivers of a pipeline that writes a table, without Spark: each executes a batch as tasks would, and commits it as Spark's driver would.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from ottla.client import TopicPartition
from ottla.spark.decision import BatchRange, PlannedBatch
from ottla.spark.tables.commit import Execution, commit_execution
from ottla.spark.tables.data_files import write_rows
from ottla.spark.tables.formats import open_log
from ottla.spark.tables.position import TableCommit
from ottla.spark.tables.storage import TableFiles, explained
from ottla.spark.tables.table import Table
from ottla.spark.tables.table_log import TableLog, batch_directory, file_plan

S3_PROPERTIES = {
    "s3.endpoint": "aws_endpoint_url", "s3.access-key-id": "aws_access_key_id", "s3.secret-access-key": "aws_secret_access_key",
    "s3.region": "aws_region",
}  # fmt: skip
GROUP, TOPIC = "numbers", "in"
COLUMNS = pa.schema([("number", pa.int64()), ("part", pa.string())])


def batch_range(start: int, end: int, topic: str = TOPIC) -> BatchRange:
    return BatchRange({TopicPartition(topic, 0): start}, {TopicPartition(topic, 0): end})


def delta_table(directory: Path, **options: Any) -> Table:
    return Table(str(directory / "table"), **options)


def iceberg_table(directory: Path, **options: Any) -> Table:
    return Table(str(directory / "table"), format="iceberg", catalog={"type": "sql", "uri": f"sqlite:///{directory}/catalog.db"}, **options)


def iceberg(table: Table) -> Any:
    """Returns the table, loaded by PyIceberg."""
    access = {name: table.storage[key] for name, key in S3_PROPERTIES.items() if key in table.storage}
    return load_catalog("default", **access, **table.catalog).load_table(table.identifier)


def delta(table: Table) -> DeltaTable:
    """Returns the table, loaded by deltalake."""
    return DeltaTable(table.uri, storage_options={**table.storage, "aws_allow_http": "true"} if table.storage else None)


# The contents of a table, read by the format's library.


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """Returns the rows in order."""
    found = delta(table).to_pyarrow_table() if table.format == "delta" else iceberg(table).scan().to_arrow()
    return sorted(zip(*found.to_pydict().values(), strict=True), key=str)


def numbers_of(table: Table) -> list[int]:
    return sorted(row[0] for row in rows_of(table))


def live_files(table: Table) -> set[str]:
    """Returns the data files of the newest version, relative to the location."""
    if table.format == "delta":
        return {unquote(path) for path in delta(table).get_add_actions().column("path").to_pylist()}
    return {path.removeprefix(f"{table.uri}/") for path in iceberg(table).inspect.files()["file_path"].to_pylist()}


def commits_of(table: Table) -> list[dict[str, Any]]:
    """Returns the data of pipelines in the commits of the table's log, oldest first."""
    if table.format == "delta":
        return [one["ottla"] for one in reversed(delta(table).history()) if "ottla" in one]
    summaries = [one.summary.additional_properties for one in iceberg(table).snapshots()]
    return [json.loads(one["ottla-commit"]) for one in summaries if "ottla-commit" in one]


class Driver:
    """A driver with its own `TableLog`. `query` is the id of its checkpoint."""

    def __init__(self, table: Table, query: str = "query", group: str = GROUP, topic: str = TOPIC) -> None:
        self.table, self.query, self.group, self.topic = table, query, group, topic
        self.log: TableLog = open_log(table)
        self.files = TableFiles(table)

    def execute(self, batch_id: int, numbers: Sequence[int], columns: pa.Schema = COLUMNS) -> Execution:
        """Writes the files of a batch."""
        plan = file_plan(self.log, self.log.prepare(columns), batch_directory(self.query, batch_id))
        values = {"number": list(numbers), "part": [f"p {number % 3}/%" for number in numbers]}
        rows = pa.RecordBatch.from_pydict({name: values.get(name, [None] * len(numbers)) for name in columns.names}, columns)
        with explained(self.table):
            return Execution(secrets.token_hex(8), plan.directory, write_rows(self.files, plan, 0, [rows]), plan.columns)

    def commit(self, batch_id: int, execution: Execution, start: int, end: int) -> TableCommit | None:
        batch = PlannedBatch(self.group, self.query, batch_id, batch_range(start, end, self.topic), True, table=self.table.uri)
        return commit_execution(self.log, self.files, batch, execution)

    def run(self, batch_id: int, start: int, end: int) -> TableCommit | None:
        """Executes and commits a batch with the numbers of its range."""
        return self.commit(batch_id, self.execute(batch_id, range(start, end)), start, end)
