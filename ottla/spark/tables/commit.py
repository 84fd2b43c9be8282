"""Commits a batch to a table on the driver: files and position in one commit of the table's log, then the group's offsets.

The position in the log decides, as the group's offsets do for topics (`decision.py`). A batch that is committed already is skipped. If
another driver has committed the batch, this driver finds the new position in the log. If the other one commits at the same time, the log
refuses this driver's commit, and it reads the position again.

Files of a batch are in one directory. They are removed only when no commit can name them any more: - after the batch's commit: all other
files in its directory, from failed attempts and earlier executions. The log refuses a driver that still tries to commit one of these
executions;
- when the log shows that another execution committed the batch: the files of this execution;
- when Spark gives up before a commit is tried: the files of the tasks that were finished.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client import ClientError, KafkaError, TransportError
from ottla.spark.connections import client_of, forget
from ottla.spark.decision import PlannedBatch, decide
from ottla.spark.errors import BrokerError, PipelineError
from ottla.spark.options import ClusterConnection
from ottla.spark.tables.columns import check_columns
from ottla.spark.tables.data_files import DataFile
from ottla.spark.tables.position import Position, TableCommit, batch_commit
from ottla.spark.tables.races import RACE_TRIES, RacedError, attempts
from ottla.spark.tables.storage import TableFiles, explained
from ottla.spark.tables.table_log import TableLog

GROUP_PAUSE_S = 0.2


class Execution(NamedTuple):
    """One execution of a batch: its token, the directory of the batch, and the files that its tasks have written with these columns."""

    token: str
    directory: str
    files: Sequence[DataFile]
    columns: object

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def commit_execution(log: TableLog, files: TableFiles, batch: PlannedBatch, execution: Execution) -> TableCommit | None:
    """Commits a batch to the table, unless it is committed already. Returns the pipeline's last commit, None if the log no longer has it.

    Raises `OffsetConflictError` if table and checkpoint disagree, `OutputError` if the table's columns have changed.
    """
    with explained(log.table):
        for tries_left in attempts():
            columns = log.refresh()
            position = log.position(batch.group, batch.range.end)
            batch, is_done = decide(batch, position.committed, ())
            if is_done:
                _remove_unneeded(files, batch, execution, position)
                return position.last
            if execution.files:
                check_columns(execution.columns, columns, log.partition_by)
            made = batch_commit(
                batch, sequence=position.sequence + 1, token=execution.token, rows=execution.rows, directory=execution.directory
            )
            try:
                log.commit(made, execution.files, position)
            except RacedError as error:
                if not tries_left:
                    raise PipelineError(f"location: {log.table.uri}: other writers came first {RACE_TRIES} times: {error}") from None
                continue
            _remove_others(files, execution)
            return made
    raise AssertionError("the last attempt returns or raises")


def _remove_unneeded(files: TableFiles, batch: PlannedBatch, execution: Execution, position: Position) -> None:
    """Removes unneeded files of an execution whose batch is committed already. If this execution was committed, it keeps the committed
    files and removes the others. If another execution was committed, it removes the files of this one. If the log does not show which
    execution was committed, it removes nothing.
    """
    last = position.last
    if last is None or (last.query_id, last.batch_id) != (batch.query_id, batch.batch_id):
        return
    if last.token == execution.token:
        _remove_others(files, execution)
    else:
        files.remove(file.path for file in execution.files)


def _remove_others(files: TableFiles, execution: Execution) -> None:
    if execution.directory:
        files.remove({*files.below(execution.directory)} - {file.path for file in execution.files})


def commit_group(connection: ClusterConnection, commit: TableCommit, retry_s: float) -> None:
    """Commits the table's position as the group's offsets, so that Kafka's tools show the lag. Repeats it for `retry_s` while brokers do
    not answer. Raises `BrokerError`; the position in the table is not affected."""
    deadline = time.monotonic() + retry_s
    while True:
        try:
            client = client_of(connection, use="table")
            client.commit(commit.group, commit.committed())
            return
        except (TransportError, KafkaError) as error:
            forget(connection)
            may_pass = isinstance(error, TransportError) or error.is_retriable
            if not may_pass or time.monotonic() > deadline:
                raise _not_in_group(commit, error) from error
        except ClientError as error:
            raise _not_in_group(commit, error) from error
        time.sleep(GROUP_PAUSE_S)


def _not_in_group(commit: TableCommit, error: ClientError) -> BrokerError:
    return BrokerError(
        f"group: batch {commit.batch_id} is in the table, and its offsets could not be committed to group {commit.group!r}: {error}. "
        "Nothing is lost; the next start commits them"
    )
