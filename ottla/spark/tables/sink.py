"""Spark's sink for a pipeline that writes a table: tasks write Parquet files, and the driver commits them (`commit.py`).

Processes are as in `ottla/spark/sink.py`: for every batch Spark makes a writer in a planning process on the driver's host and pickles it to
the tasks. `commit` and `abort` run in another process there. Only the planning process pickles its writer; at that time the writer creates
the table or adds columns to it, and draws the token of this execution of the batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, WriterCommitMessage

from ottla.spark.batch_range import find_batch_range, find_query_id, mark_used
from ottla.spark.connections import reported
from ottla.spark.decision import PlannedBatch
from ottla.spark.errors import OptionError, PipelineError
from ottla.spark.options import SinkOptions, parse_sink
from ottla.spark.source_groups import find_groups, run_of_task
from ottla.spark.spark_versions import DataSourceStreamArrowWriter
from ottla.spark.tables.columns import spark_columns
from ottla.spark.tables.commit import Execution, commit_execution, commit_group
from ottla.spark.tables.data_files import DataFile, FilePlan, write_rows
from ottla.spark.tables.formats import open_log
from ottla.spark.tables.storage import TableFiles, explained
from ottla.spark.tables.table import Table
from ottla.spark.tables.table_log import batch_directory, file_plan
from ottla.spark.topics import check_one_cluster
from ottla.spark.worker_process import freeze_imports

FORMAT = "ottla-table"
TABLE_OPTION = "table"
"""The option with the `Table` as JSON."""

_BATCH = "streaming.sql.batchId"
_QUERY = "sql.streaming.queryId"


class TableMessage(WriterCommitMessage):
    """A task's commit message: its files, the token of the execution, the batch's directory and columns, the query id and run, and the
    groups of sources that were seen on the task's host."""

    def __init__(
        self, files: list[DataFile], token: str, directory: str, columns: Any, query_id: str, source_groups: tuple[str, ...], run: str
    ) -> None:
        self.files = files
        self.token = token
        self.directory = directory
        self.columns = columns
        self.query_id = query_id
        self.source_groups = source_groups
        self.run = run


class TableSource(DataSource):
    """Spark's entry point: the format `ottla-table`, which `Pipeline` registers in its session. It has only a stream writer."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @reported()
    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise OptionError("output_mode: a table takes append only, since each batch adds its rows")
        given = {name: value for name, value in self.options.items() if name.lower() != TABLE_OPTION}
        return TableStreamWriter(Table.from_json(self.options[TABLE_OPTION]), parse_sink(given), schema)


class TableStreamWriter(DataSourceStreamArrowWriter):
    """Commits each batch of a stream to a table, exactly once."""

    def __init__(self, table: Table, options: SinkOptions, schema: Any) -> None:
        self.table = table
        self.options = options
        self._rows = spark_columns(schema)
        self._token = secrets.token_hex(8)
        self._plan: FilePlan | PipelineError | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._plan is None:
            try:
                self._plan = self._planned()
            except PipelineError as error:
                self._plan = error  # the tasks raise it: Spark would report an error in this process as an error of pickle
        return self.__dict__

    def _planned(self) -> FilePlan:
        log = open_log(self.table)
        return file_plan(log, log.prepare(self._rows), "")

    def write(self, rows: Iterator[Any]) -> TableMessage:
        plan, task = self._plan, TaskContext.get()
        assert plan is not None, "the writer was pickled on its way to the task"
        if isinstance(plan, PipelineError):
            with reported():
                raise plan
        query_id, batch_id = task.getLocalProperty(_QUERY) or "", task.getLocalProperty(_BATCH)
        place = batch_directory(query_id, batch_id) if query_id and batch_id else f"execution-{self._token}"
        plan = plan._replace(directory=f"{plan.directory}{place}")
        freeze_imports()
        with reported(), explained(self.table):
            files = write_rows(TableFiles(self.table), plan, task.partitionId(), rows)
        return TableMessage(files, self._token, plan.directory, plan.columns, query_id, find_groups(), run_of_task())

    @reported()
    def commit(self, messages: list[TableMessage | None], batchId: int) -> None:
        found = [message for message in messages if message is not None]
        options, first = self.options, found[0] if found else None
        group = options.group
        if group is None:
            raise OptionError("group: missing; a pipeline with a table needs a group")
        seen = {one for message in found for one in message.source_groups}
        batch_range = find_batch_range(options.checkpoint, batchId, group=group, seen_groups=seen)
        check_one_cluster(options, batch_range)
        query_id = find_query_id(options.checkpoint) or (first.query_id if first is not None else "")
        files = [file for message in found for file in message.files]
        run = first.run if first is not None else ""
        batch = PlannedBatch(group, query_id, batchId, batch_range, bool(files), options.is_checkpoint_trusted, self.table.uri, run)
        execution = Execution(
            first.token if first is not None else self._token,
            first.directory if first is not None else "",
            files,
            first.columns if first is not None else None,
        )
        made = commit_execution(open_log(self.table), TableFiles(self.table), batch, execution)
        if made is not None and made.ranges:
            commit_group(options.connection, made, options.retry_s)
        mark_used(group, batchId)

    @reported()
    def abort(self, messages: list[TableMessage | None], batchId: int) -> None:
        """Removes the files of finished tasks, if a task has failed. Otherwise a commit may have been tried, whose outcome is unknown; the
        next execution of the batch removes the files."""
        if all(message is not None for message in messages):
            return
        files = TableFiles(self.table)
        try:
            with explained(self.table):
                files.remove(file.path for message in messages if message is not None for file in message.files)
        except PipelineError:
            pass  # the next execution of the batch removes them
