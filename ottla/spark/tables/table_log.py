"""The interface of the two table formats, Delta and Iceberg: what a pipeline needs of a table's log, and what the proof that it wrote
exactly once (`tables/verify.py`) needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.client import TopicPartition
from ottla.spark.tables.data_files import DataFile, FilePlan
from ottla.spark.tables.position import Position, TableCommit
from ottla.spark.tables.table import Table


class LoggedCommit(NamedTuple):
    """A commit in a table's log that adds or removes rows. `version` is its number in the log. `commit` is what the pipeline stored in it
    (group, sequence, offsets); None if another writer made the commit. `added` and `removed` are numbers of rows; both are 0 for
    compaction."""

    version: int
    timestamp_ms: int
    commit: TableCommit | None
    added: int
    removed: int


class TableHistory(NamedTuple):
    """The commits of a table's log, oldest first; `is_whole` if none has expired."""

    commits: list[LoggedCommit]
    is_whole: bool


class LiveFile(NamedTuple):
    """A data file of the table: its path relative to the location, and the rows that the log says it has."""

    path: str
    size_bytes: int
    rows: int


class TableLog(Protocol):
    """A table and its log. `prepare`, `find` and `refresh` read the log; the other members describe the state that was read last."""

    table: Table
    has_partition_columns: bool
    """Whether data files contain the partition columns."""

    def prepare(self, rows: Any) -> Any:
        """Creates the table if it does not exist, adds columns if that is allowed, and returns the table's columns (`pyarrow.Schema`).

        Raises `OutputError` if the rows do not fit the table, `PipelineError` if the table cannot be used.
        """

    @property
    def data_directory(self) -> str:
        """The directory of data files, relative to the location; empty for the location itself. No other table has files in it."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns of the table as it is stored. The option `Table.partition_by` may differ from them if another program has
        created the table."""

    def find(self) -> bool:
        """Reads the newest state of the table; returns False if there is no table. Raises `PipelineError` if it cannot be read."""

    def refresh(self) -> Any:
        """Reads the newest state of the table; returns its columns. Raises `MissingTableError` if there is no table."""

    def position(self, group: str, partitions: Iterable[TopicPartition]) -> Position:
        """Returns the position of the group's pipeline. If the pipeline's last commit has expired from the log, the position has only the
        offsets of `partitions` that the format keeps outside of the commits (Delta does), or no offsets."""

    def commit(self, commit: TableCommit, files: Sequence[DataFile], before: Position) -> None:
        """Adds files and position to the table in one commit, if the table has not changed since it was read; `before` is the position that
        was read. Raises `RacedError` if another writer committed first, `PipelineError` for other failures. After a `PipelineError` the
        outcome may be unknown: the position in the log shows it."""

    def history(self) -> TableHistory:
        """Returns the commits that are in the log, of all writers."""

    def live_files(self) -> list[LiveFile]:
        """Returns the data files of the newest version."""

    def compact(self) -> int:
        """Joins small files and removes files that no version needs any more; see `compaction.py`. Returns the number of removed files."""


def file_plan(log: TableLog, columns: Any, directory: str) -> FilePlan:
    """Returns the plan for writing rows with the table's columns: where below a directory of the table's data, in files of which size and
    compression."""
    table = log.table
    place = f"{log.data_directory}/{directory}".lstrip("/")
    return FilePlan(columns, log.partition_by, place, table.file_bytes, table.compression, log.has_partition_columns)


def batch_directory(query_id: str, batch_id: object) -> str:
    """Returns the directory for the files of all executions of a batch."""
    return f"query-{query_id}/batch-{batch_id}"
