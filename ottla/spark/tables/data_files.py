"""Writes rows as Parquet files, one or more for each partition of the table (`write_rows`). No two attempts use the same file name.

Rows are kept in memory until they fill a row group. `BUFFERED_BYTES_MAX` limits the rows in memory over all partitions, and
`OPEN_FILES_MAX` the number of open files. Above a limit the largest partition is written, or its file is closed. A task with very many
partitions therefore makes more and smaller files.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.spark.tables.columns import fitted
from ottla.spark.tables.storage import TableFiles

ROW_GROUP_BYTES = 16 * 1024 * 1024
BUFFERED_BYTES_MAX = 64 * 1024 * 1024
OPEN_FILES_MAX = 64
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"

PartitionValues = tuple[Any, ...]


class DataFile(NamedTuple):
    """A written Parquet file. `path` is relative to the table, `values` has the values of the partition columns, in their order.

    `footer` has the file's Parquet metadata (`FileMetaData`), serialized, for the statistics in the table's log. `written_ms` is the time
    when the file was closed, in milliseconds since 1970.
    """

    path: str
    size_bytes: int
    rows: int
    values: PartitionValues
    footer: bytes
    written_ms: int


class FilePlan(NamedTuple):
    """How rows are written: the table's columns, the partition columns, the directory for the files (relative to the table), the size goal
    and the compression.

    `has_partition_columns`: whether files contain the partition columns (Iceberg), or only the log has their values (Delta).
    """

    columns: pa.Schema
    partition_by: Sequence[str]
    directory: str
    file_bytes: int
    compression: str
    has_partition_columns: bool


def write_rows(files: TableFiles, plan: FilePlan, task: int, rows: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Writes rows and returns their files. If that fails, it removes all of them. `task` is a part of their names."""
    written = RowFiles(files, plan, task)
    try:
        for batch in rows:
            written.add(batch)
        return written.finish()
    except BaseException:
        written.discard()
        raise


class RowFiles:
    """The files of one call of `write_rows`. `add` takes rows, `finish` returns the files, and `discard` removes them."""

    def __init__(self, files: TableFiles, plan: FilePlan, task: int) -> None:
        self._files = files
        self._plan = plan
        self._task = task
        self._open: dict[PartitionValues, _PartitionFile] = {}
        self._buffered = 0
        self._created: list[str] = []
        self.done: list[DataFile] = []
        partition_by = () if plan.has_partition_columns else plan.partition_by
        self._file_columns = pa.schema([field for field in plan.columns if field.name not in partition_by])

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        for values, part in self._parts(fitted(rows, self._plan.columns)):
            found = self._open.get(values)
            if found is None:
                if len(self._open) >= OPEN_FILES_MAX:
                    self._close(max(self._open, key=lambda key: self._open[key].size_bytes))
                found = self._open[values] = self._begin(values)
            self._buffered += found.add(part)
            if found.buffered >= ROW_GROUP_BYTES:
                self._write(found)
            if found.size_bytes >= self._plan.file_bytes:
                self._close(values)
        while self._buffered > BUFFERED_BYTES_MAX:
            self._write(max(self._open.values(), key=lambda one: one.buffered))

    def finish(self) -> list[DataFile]:
        for values in list(self._open):
            self._close(values)
        return self.done

    def discard(self) -> None:
        """Removes all of the files, finished or not."""
        for found in self._open.values():
            found.abandon()
        self._open.clear()
        self._files.remove(self._created)

    def _parts(self, rows: pa.Table) -> Iterator[tuple[PartitionValues, pa.Table]]:
        """Divides rows by the values of the partition columns."""
        partition_by = self._plan.partition_by
        if not partition_by:
            yield (), rows
            return
        keys = rows.select(partition_by)
        if not self._plan.has_partition_columns:
            keys = _without_empty_text(keys)
        # Arrow's sort is stable. Runs of equal values are then slices, and each slice keeps the order of its rows.
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in partition_by])
        keys = keys.take(order)
        chosen = rows.select(self._file_columns.names).take(order)
        starts = [0, *_changes(keys), rows.num_rows]
        for start, end in zip(starts, starts[1:], strict=False):
            yield tuple(column[start].as_py() for column in keys.columns), chosen.slice(start, end - start)

    def _begin(self, values: PartitionValues) -> _PartitionFile:
        directories = (
            f"{name}={NULL_DIRECTORY if value is None else quote(value_text(value), safe='')}"
            for name, value in zip(self._plan.partition_by, values, strict=True)
        )
        name = f"part-{self._task:05d}-{secrets.token_hex(8)}.parquet"
        path = "/".join([self._plan.directory, *directories, name])
        self._created.append(path)
        return _PartitionFile(path, values, self._files.create(path), self._file_columns, self._plan.compression)

    def _write(self, found: _PartitionFile) -> None:
        self._buffered -= found.flush()

    def _close(self, values: PartitionValues) -> None:
        found = self._open[values]
        self._write(found)
        self.done.append(found.close())
        del self._open[values]


class _PartitionFile:
    def __init__(self, path: str, values: PartitionValues, stream: Any, columns: pa.Schema, compression: str) -> None:
        self.path = path
        self.values = values
        self.buffered = 0
        self._stream = stream
        self._rows: list[pa.Table] = []
        self._count = 0
        self._footers: list[Any] = []
        self._writer = pq.ParquetWriter(stream, columns, compression=compression, metadata_collector=self._footers, store_schema=False)

    @property
    def size_bytes(self) -> int:
        return int(self._stream.tell()) + self.buffered

    def add(self, rows: pa.Table) -> int:
        self._rows.append(rows)
        self._count += rows.num_rows
        self.buffered += rows.nbytes
        return int(rows.nbytes)

    def flush(self) -> int:
        """Writes the kept rows as one row group; returns their bytes."""
        if self._rows:
            rows = pa.concat_tables(self._rows)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        freed, self.buffered, self._rows = self.buffered, 0, []
        return freed

    def close(self) -> DataFile:
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        sink = pa.BufferOutputStream()
        self._footers[0].write_metadata_file(sink)
        return DataFile(self.path, size, self._count, self.values, sink.getvalue().to_pybytes(), int(time.time() * 1000))

    def abandon(self) -> None:
        """Closes the file, if that is possible. The caller removes it."""
        for opened in (self._writer, self._stream):
            try:
                opened.close()
            except (OSError, pa.ArrowException):
                pass


def _without_empty_text(keys: pa.Table) -> pa.Table:
    """Replaces empty texts by null, because Delta's log has no empty partition value."""
    for number, field in enumerate(keys.schema):
        if pa.types.is_string(field.type):
            column = keys.column(number)
            keys = keys.set_column(number, field.name, pc.if_else(pc.equal(column, ""), pa.scalar(None, field.type), column))
    return keys


def _changes(keys: pa.Table) -> list[int]:
    """Returns the rows that differ from the row before them, in order."""
    changed = None
    for column in keys.columns:
        array = column.combine_chunks()
        before, after = array.slice(0, len(array) - 1), array.slice(1)
        differs = pc.fill_null(pc.not_equal(before, after), False)
        nulls = pc.not_equal(pc.is_null(before), pc.is_null(after))
        here = pc.or_(differs, nulls)
        changed = here if changed is None else pc.or_(changed, here)
    return [] if changed is None else [int(at) + 1 for at in pc.indices_nonzero(changed).to_pylist()]


def value_text(value: Any) -> str:
    """Returns a partition value as text, as Delta's log and directories have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def partition_texts(partition_by: Sequence[str], values: PartitionValues) -> Mapping[str, str | None]:
    return {name: None if value is None else value_text(value) for name, value in zip(partition_by, values, strict=True)}
