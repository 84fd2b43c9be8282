"""Finds the small files of an Iceberg table, and removes old snapshots and unnamed files. PyIceberg has no compaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable

from ottla.spark.tables.storage import TableFiles

AGE_PROPERTY, DELETES_PROPERTY = "history.expire.max-snapshot-age-ms", "gc.enabled"
WEEK_MS = 7 * 24 * 3600 * 1000
SMALL = 0.75
"""Part of the size goal. Larger files are not rewritten, because a file ends a little before or behind the goal."""


def joinable(tasks: Sequence[FileScanTask], spec_id: int, goal_bytes: int) -> list[FileScanTask]:
    """Returns the small files of partitions that have two or more, partition by partition.

    A file with row-level deletes is not joined. PyIceberg's commit could not detect row-level deletes that another writer adds at the same
    time.
    """
    by_partition: dict[Any, list[FileScanTask]] = {}
    for task in tasks:
        if task.file.spec_id == spec_id and not task.delete_files and task.file.file_size_in_bytes < SMALL * goal_bytes:
            by_partition.setdefault(task.file.partition, []).append(task)
    return [task for found in by_partition.values() if len(found) > 1 for task in found]


def rows_of(found: IcebergTable, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """Returns the rows of data files with the table's present columns. Only the rows of one file are in memory at a time."""
    scan = ArrowScan(found.metadata, found.io, found.schema(), AlwaysTrue())
    for task in tasks:
        yield from scan.to_record_batches([task])


def expire_snapshots(found: IcebergTable) -> None:
    """Removes snapshots that are older than the table's limit, unless a branch or a tag names them."""
    named = {reference.snapshot_id for reference in found.metadata.refs.values()}
    expired = [one.snapshot_id for one in found.snapshots() if one.timestamp_ms < _oldest_ms(found) and one.snapshot_id not in named]
    if expired:
        found.maintenance.expire_snapshots().by_ids(expired).commit()


def remove_unnamed_files(found: IcebergTable, files: TableFiles, directory: str) -> int:
    """Removes the files of a directory that no snapshot names and that are older than the table's limit; returns their number. A table with
    `gc.enabled` false keeps them."""
    if found.metadata.properties.get(DELETES_PROPERTY, "true").lower() == "false":
        return 0
    # The rest of the path is compared, because the catalog may name the same location differently.
    named = {path.partition(f"/{directory}/")[2] for path in found.inspect.all_files()["file_path"].to_pylist()}
    old = files.written_before(directory, _oldest_ms(found))
    unnamed = [path for path in old if path.removeprefix(f"{directory}/") not in named]
    files.remove(unnamed)
    return len(unnamed)


def _oldest_ms(found: IcebergTable) -> int:
    """Returns the moment before which snapshots and unnamed files are too old, in milliseconds since 1970."""
    return int(time.time() * 1000) - int(found.metadata.properties.get(AGE_PROPERTY, WEEK_MS))
