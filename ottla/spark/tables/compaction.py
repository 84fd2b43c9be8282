"""Joins the small files of a Delta table into files of the size goal, and removes files that no version needs any more.

It may run beside the pipeline. It commits the same rows in other files, which neither moves the pipeline's position nor conflicts with
appends.
"""

from __future__ import annotations

from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ottla.spark.errors import PipelineError
from ottla.spark.tables.errors import MissingTableError
from ottla.spark.tables.formats import open_log
from ottla.spark.tables.storage import explained, first_line, storage_options
from ottla.spark.tables.table import DELTA, Table


class Compaction(NamedTuple):
    """The result of a compaction: the table's data files before and after it, their bytes after it, and the removed files."""

    files_before: int
    files_after: int
    size_bytes: int
    removed: int


def compact(table: Table) -> Compaction:
    """Joins files that are smaller than the size goal, within each partition. Then removes files of the table's directory that no version
    of the last week needs (`delta.deletedFileRetentionDuration`), also files that killed attempts have left.

    Raises `PipelineError` for an Iceberg table, and if the table cannot be read or written.
    """
    if table.format != DELTA:
        raise PipelineError(f"format: files of {table.format} tables are joined by an engine, such as Spark's rewrite_data_files")
    log = open_log(table)
    if not log.find():
        raise MissingTableError(f"location: there is no Delta table in {table.uri}")
    before = log.live_files()
    with explained(table):
        try:
            delta = DeltaTable(table.uri, storage_options=storage_options(table))
            delta.optimize.compact(target_size=table.file_bytes)
            delta.update_incremental()
            removed = delta.vacuum(dry_run=False, full=True)
        except DeltaError as error:
            raise PipelineError(f"location: {table.uri}: {first_line(error)}") from error
    log.refresh()
    after = log.live_files()
    return Compaction(len(before), len(after), sum(one.size_bytes for one in after), len(removed))
