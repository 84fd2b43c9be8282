"""Joins the small files of a table into files of the size goal, and removes files that no version needs any more.

It may run beside the pipeline. It commits the same rows in other files, which does not move the pipeline's position.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.spark.tables.formats import open_log
from ottla.spark.tables.storage import explained
from ottla.spark.tables.table import Table


class Compaction(NamedTuple):
    """The result of a compaction: the table's data files before and after it, their bytes after it, and the removed files."""

    files_before: int
    files_after: int
    size_bytes: int
    removed: int


def compact(table: Table) -> Compaction:
    """Joins files that are smaller than the size goal, within each partition. Then removes files of the table's directory that no version
    of the last week needs, also files that killed attempts have left. The table may have another period than a week
    (`delta.deletedFileRetentionDuration`, Iceberg's `history.expire.max-snapshot-age-ms`).

    Raises `MissingTableError` if there is no table, `PipelineError` if it cannot be read or written.
    """
    log = open_log(table)
    log.refresh()
    before = log.live_files()
    with explained(table):
        removed = log.compact()
    log.refresh()
    after = log.live_files()
    return Compaction(len(before), len(after), sum(one.size_bytes for one in after), removed)
