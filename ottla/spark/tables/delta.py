"""Reads and writes a Delta table: its columns, a pipeline's position in the table's log, and commits of data files together with that
position.

A commit contains the added files, an application transaction (`txn`) of the pipeline, and the position in the commit's information.
delta-rs refuses a commit if the same application transaction has been committed since the table was read. The files of Delta's log expire,
by default 30 days after a checkpoint has replaced them, but application transactions do not expire. The offset of each partition is
therefore stored as an application transaction, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from ottla.client import Committed, TopicPartition
from ottla.spark.errors import OutputError, PipelineError
from ottla.spark.tables.columns import check_columns, plain
from ottla.spark.tables.data_files import DataFile, partition_texts
from ottla.spark.tables.delta_history import read_history
from ottla.spark.tables.delta_statistics import statistics
from ottla.spark.tables.errors import MissingTableError
from ottla.spark.tables.position import KEY, Position, TableCommit, read_commit
from ottla.spark.tables.races import RacedError
from ottla.spark.tables.storage import TableFiles, explained, first_line, storage_options
from ottla.spark.tables.table import Table
from ottla.spark.tables.table_log import LiveFile, TableHistory

HISTORY_STEPS = (1, 16, 256)
"""How many of the newest commits are searched for the pipeline's last one, before all of them are."""

CREATE_TRIES = 3
_CONFLICTS = ("Concurrent transaction failed", "Metadata changed since last commit", "Protocol changed since last commit")
_UNSUPPORTED = ("delta.columnMapping.mode", "delta.constraints.", "delta.enableRowTracking", "delta.enableIcebergCompat")
_UNSUPPORTED_FIELDS = ("delta.generationExpression", "delta.identity.", "delta.invariants")


class DeltaLog:
    """A Delta table; see `TableLog`. It is opened when it is first needed."""

    has_partition_columns = False

    def __init__(self, table: Table) -> None:
        self.table = table
        self._delta: DeltaTable | None = None

    def prepare(self, rows: pa.Schema) -> pa.Schema:
        with self._explained():
            delta = self._open_or_create(rows)
            missing = check_columns(rows, _columns(delta), self.partition_by, may_add=self.table.add_columns)
            if missing:
                delta.alter.add_columns(list(DeltaSchema.from_arrow(pa.schema(missing)).fields))
                delta.update_incremental()
            return _columns(delta)

    @property
    def data_directory(self) -> str:
        return ""

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._opened().metadata().partition_columns)

    def find(self) -> bool:
        try:
            with self._explained():
                self._opened().update_incremental()
        except MissingTableError:
            return False
        return True

    def refresh(self) -> pa.Schema:
        with self._explained():
            delta = self._opened()
            delta.update_incremental()
            return _columns(delta)

    def position(self, group: str, partitions: Iterable[TopicPartition]) -> Position:
        last = self._last_commit(group)
        if last is not None:
            return Position(last.sequence, last.committed(), last)
        with self._explained():
            delta = self._opened()
            found = {one: delta.transaction_version(_application(group, one)) for one in partitions}
            sequence = delta.transaction_version(_application(group)) or 0
        return Position(sequence, {one: Committed(offset) for one, offset in found.items() if offset is not None})

    def commit(self, commit: TableCommit, files: Sequence[DataFile], before: Position) -> None:
        delta = self._opened()
        partition_by = self.partition_by
        moved = {one: end for one, (_, end) in commit.ranges.items() if one not in before.committed or before.committed[one].offset != end}
        transactions = [Transaction(_application(commit.group), commit.sequence)]
        transactions += [Transaction(_application(commit.group, one), end) for one, end in sorted(moved.items())]
        properties = CommitProperties(custom_metadata={KEY: commit.to_value()}, app_transactions=transactions)
        actions: list[Any] = [_add_action(one, partition_by) for one in files]
        with self._explained():
            try:
                delta.create_write_transaction(actions, "append", delta.schema(), list(partition_by), commit_properties=properties)
            except CommitFailedError as error:
                if any(known in str(error) for known in _CONFLICTS):
                    raise RacedError(first_line(error)) from None
                raise

    def history(self) -> TableHistory:
        with self._explained():
            return read_history(TableFiles(self.table))

    def live_files(self) -> list[LiveFile]:
        with self._explained():
            found = pa.table(self._opened().get_add_actions())
            paths, sizes, rows = (found.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
        return [LiveFile(unquote(path), size, count or 0) for path, size, count in zip(paths, sizes, rows, strict=True)]

    def compact(self) -> int:
        with self._explained():
            delta = self._opened()
            delta.optimize.compact(target_size=self.table.file_bytes)
            delta.update_incremental()
            return len(delta.vacuum(dry_run=False, full=True))

    def _last_commit(self, group: str) -> TableCommit | None:
        """Returns the pipeline's last commit; None if there is none, or if it has expired from the log."""
        with self._explained():
            delta = self._opened()
            if delta.transaction_version(_application(group)) is None:
                return None
            for limit in (*HISTORY_STEPS, None):
                history = delta.history(limit)
                found = (read_commit(one.get(KEY)) for one in history)
                last = next((one for one in found if one is not None and one.group == group), None)
                if last is not None or (limit is not None and len(history) < limit):
                    return last
            return None

    # Opening

    def _opened(self) -> DeltaTable:
        if self._delta is None:
            self._delta = DeltaTable(self.table.uri, storage_options=storage_options(self.table))
            _check_supported(self._delta, self.table)
        return self._delta

    def _open_or_create(self, rows: pa.Schema) -> DeltaTable:
        for tries_left in reversed(range(CREATE_TRIES)):
            try:
                delta = self._opened()
                delta.update_incremental()
                return delta
            except TableNotFoundError:
                self._delta = None
                if not tries_left:
                    raise
            check_columns(rows, None, self.table.partition_by)
            try:
                DeltaTable.create(
                    self.table.uri, rows, mode="ignore", partition_by=list(self.table.partition_by),
                    storage_options=storage_options(self.table),
                )  # fmt: skip
            except CommitFailedError:
                if not tries_left:
                    raise  # else another driver has created it just now
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with explained(self.table):
            try:
                yield
            except RacedError:
                raise
            except TableNotFoundError:
                raise MissingTableError(f"location: there is no Delta table in {self.table.uri}") from None
            except DeltaError as error:
                raise PipelineError(f"location: {self.table.uri}: {first_line(error)}") from error


def _application(group: str, partition: TopicPartition | None = None) -> str:
    name = f"{KEY}:{quote(group, safe='')}"
    return name if partition is None else f"{name}:{partition.topic}:{partition.partition}"


def _columns(delta: DeltaTable) -> pa.Schema:
    return plain(pa.schema(delta.schema().to_arrow()))


def _add_action(file: DataFile, partition_by: Sequence[str]) -> AddAction:
    values = partition_texts(partition_by, file.values)
    return AddAction(file.path, file.size_bytes, values, file.written_ms, True, statistics(file.footer))


def _check_supported(delta: DeltaTable, table: Table) -> None:
    """Raises `OutputError` for a table with features that writers must support, such as column mapping, constraints or generated columns.
    """
    configuration = delta.metadata().configuration
    named = sorted(name for name in configuration if name.startswith(_UNSUPPORTED) and configuration[name] not in ("none", "false"))
    fields = json.loads(delta.schema().to_json())["fields"]
    named += sorted(name for field in fields for name in field.get("metadata", {}) if name.startswith(_UNSUPPORTED_FIELDS))
    if named:
        raise OutputError(f"location: {table.uri} has {named[0]}, which a pipeline cannot write; use a table without it")
