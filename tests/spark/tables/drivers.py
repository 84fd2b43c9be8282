"""Drivers of a pipeline into a table, without Spark: each executes a batch as tasks would, and commits it as Spark's driver would."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import pyarrow as pa

from ottla.client import TopicPartition
from ottla.spark.decision import BatchRange, PlannedBatch
from ottla.spark.tables.commit import Execution, commit_execution
from ottla.spark.tables.data_files import FilePlan, TaskFiles
from ottla.spark.tables.formats import open_log
from ottla.spark.tables.position import TableCommit
from ottla.spark.tables.storage import TableFiles
from ottla.spark.tables.table import Table
from ottla.spark.tables.table_log import TableLog

GROUP, TOPIC = "numbers", "in"
COLUMNS = pa.schema([("number", pa.int64()), ("part", pa.string())])


def batch_range(start: int, end: int, topic: str = TOPIC) -> BatchRange:
    return BatchRange({TopicPartition(topic, 0): start}, {TopicPartition(topic, 0): end})


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
        task = TaskFiles(self.files, plan, 0)
        values = {"number": list(numbers), "part": [f"p {number % 3}/%" for number in numbers]}
        task.add(pa.RecordBatch.from_pydict({name: values.get(name, [None] * len(numbers)) for name in columns.names}, columns))
        return Execution(secrets.token_hex(8), directory, task.finish(), planned)

    def commit(self, batch_id: int, execution: Execution, start: int, end: int) -> TableCommit | None:
        batch = PlannedBatch(self.group, self.query, batch_id, batch_range(start, end, self.topic), True, table=self.table.uri)
        return commit_execution(self.log, self.files, batch, execution)

    def run(self, batch_id: int, start: int, end: int) -> TableCommit | None:
        """Executes and commits a batch with the numbers of its range."""
        return self.commit(batch_id, self.execute(batch_id, range(start, end)), start, end)
