"""Reads and writes an Iceberg table in a catalog: its columns, a pipeline's position, and commits of data files together with that
position.

A commit is one snapshot. The snapshot's summary has the position, for `ottla pipeline verify`. The same commit also writes the position
into a property of the table, because snapshots expire. The catalog accepts a snapshot only if its parent is still the table's newest one.
PyIceberg would put a refused snapshot on top of the new one and try again; that is switched off here, because the position has to be
compared first.
"""

from __future__ import annotations

import inspect
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, TableProperties
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import IdentityTransform
from sqlalchemy.exc import SQLAlchemyError

from ottla.client import TopicPartition
from ottla.spark.errors import OutputError, PipelineError
from ottla.spark.tables.columns import check_columns, plain, with_types
from ottla.spark.tables.data_files import DataFile, write_rows
from ottla.spark.tables.errors import MissingTableError
from ottla.spark.tables.iceberg_compaction import expire_snapshots, joinable, remove_unnamed_files, rows_of
from ottla.spark.tables.position import KEY, Position, TableCommit, read_commit
from ottla.spark.tables.races import RACE_TRIES, RacedError, attempts
from ottla.spark.tables.storage import TableFiles, explained, first_line, storage_options
from ottla.spark.tables.table import Table
from ottla.spark.tables.table_log import LiveFile, LoggedCommit, TableHistory, file_plan

SUMMARY_KEY, COMPACTION_KEY = f"{KEY}-commit", f"{KEY}-compaction"
CREATE_TRIES = 3
_NAME, _DEFAULT_NAME = "name", "default"
_S3 = {
    "aws_endpoint_url": "s3.endpoint",
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
    "aws_region": "s3.region",
}
_WIDER = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}
"""Iceberg has no whole numbers of less than 32 bits."""

_ICEBERG_ERRORS = tuple(one for _, one in inspect.getmembers(exceptions, inspect.isclass) if issubclass(one, Exception))

_catalogs: dict[tuple[int, str], Catalog] = {}
"""Catalogs that this process has opened, by their properties. A forked child must not use its parent's connections."""


class IcebergLog:
    """An Iceberg table; see `TableLog`."""

    has_partition_columns = True

    def __init__(self, table: Table) -> None:
        self.table = table
        self._loaded: IcebergTable | None = None

    def prepare(self, rows: pa.Schema) -> pa.Schema:
        rows = with_types(rows, _WIDER)
        with self._explained():
            found = self._find_or_create(rows)
            missing = check_columns(rows, _columns(found), self.partition_by, may_add=self.table.add_columns)
            if missing:
                with found.update_schema() as update:
                    update.union_by_name(pa.schema(missing))
                found = self._load()
            return _columns(found)

    @property
    def data_directory(self) -> str:
        return f"data/{self._opened().metadata.table_uuid}"

    @property
    def partition_by(self) -> tuple[str, ...]:
        found = self._opened()
        return tuple(found.schema().find_column_name(field.source_id) or "" for field in found.spec().fields)

    def find(self) -> bool:
        try:
            with self._explained():
                self._load()
        except MissingTableError:
            return False
        return True

    def refresh(self) -> pa.Schema:
        with self._explained():
            return _columns(self._load())

    def position(self, group: str, partitions: Iterable[TopicPartition]) -> Position:
        last = read_commit(self._opened().properties.get(_property(group)))
        return Position(0, {}) if last is None else Position(last.sequence, last.committed(), last)

    def commit(self, commit: TableCommit, files: Sequence[DataFile], before: Position) -> None:
        found = self._opened()
        with self._explained():
            try:
                with _without_retries(found).transaction() as transaction:
                    transaction.set_properties({_property(commit.group): commit.to_text()})
                    with transaction.update_snapshot({SUMMARY_KEY: commit.to_text()}).fast_append() as append:
                        for file in files:
                            append.append_data_file(_data_file(found, self.table, file))
            except exceptions.CommitFailedException as error:
                raise RacedError(first_line(error)) from None

    def history(self) -> TableHistory:
        found = self._opened()
        snapshots = {one.snapshot_id: one for one in found.snapshots()}
        chain: list[Snapshot] = []
        current = found.current_snapshot()
        while current is not None:
            chain.append(current)
            current = snapshots.get(current.parent_snapshot_id or 0)
        is_whole = not chain or chain[-1].parent_snapshot_id is None
        commits = [_logged(one) for one in reversed(chain)]
        return TableHistory([one for one in commits if one.commit is not None or one.added or one.removed], is_whole)

    def live_files(self) -> list[LiveFile]:
        with self._explained():
            found = [task.file for task in _live_tasks(self._opened())]
        root = f"{self.table.uri}/"
        paths = [one.file_path.removeprefix("file://").removeprefix(root) for one in found]
        return [LiveFile(path, one.file_size_in_bytes, one.record_count) for path, one in zip(paths, found, strict=True)]

    def compact(self) -> int:
        """Joins small files in one commit. Then removes snapshots that are older than the table's limit, and files that no remaining
        snapshot names.
        """
        with self._explained():
            found = self._load()
            small = joinable(_live_tasks(found), found.spec().spec_id, self.table.file_bytes)
            files = TableFiles(self.table)
            if small:
                plan = file_plan(self, _columns(found), f"compaction-{secrets.token_hex(8)}")
                joined = write_rows(files, plan, 0, rows_of(found, small))
                try:
                    self._replace(small, joined)
                except RacedError as error:
                    files.remove(one.path for one in joined)
                    raise PipelineError(f"location: {self.table.uri}: files are not joined: {error}") from None
            expire_snapshots(self._load())
            return remove_unnamed_files(self._load(), files, self.data_directory)

    def _replace(self, old: Sequence[FileScanTask], new: Sequence[DataFile]) -> None:
        """Replaces data files by others with the same rows. Raises `RacedError` if another writer has removed or changed an old file, or if
        another writer commits first in every attempt.
        """
        replaced = {task.file for task in old}
        for _ in attempts():
            found = self._load()
            if not replaced <= {task.file for task in _live_tasks(found) if not task.delete_files}:
                raise RacedError("another writer has changed them")
            try:
                with (
                    _without_retries(found).transaction() as transaction,
                    transaction.update_snapshot({COMPACTION_KEY: "true"}).overwrite() as overwrite,
                ):
                    for data_file in replaced:
                        overwrite.delete_data_file(data_file)
                    for file in new:
                        overwrite.append_data_file(_data_file(found, self.table, file))
                return
            except exceptions.CommitFailedException:
                continue
        raise RacedError(f"other writers came first {RACE_TRIES} times")

    # Opening

    def _catalog(self) -> Catalog:
        given = storage_options(self.table)
        properties = {**{name: given[key] for key, name in _S3.items() if key in given}, **self.table.catalog}
        key = os.getpid(), json.dumps(properties, sort_keys=True)
        if key not in _catalogs:
            _catalogs[key] = load_catalog(properties.pop(_NAME, _DEFAULT_NAME), **properties)
        return _catalogs[key]

    def _load(self) -> IcebergTable:
        self._loaded = self._catalog().load_table(self.table.identifier)
        _check_supported(self._loaded, self.table)
        return self._loaded

    def _opened(self) -> IcebergTable:
        with self._explained():
            return self._loaded or self._load()

    def _find_or_create(self, rows: pa.Schema) -> IcebergTable:
        for tries_left in reversed(range(CREATE_TRIES)):
            try:
                return self._load()
            except exceptions.NoSuchTableError:
                if not tries_left:
                    raise
            check_columns(rows, None, self.table.partition_by)
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(self.table.identifier.rpartition(".")[0])
            try:
                with (
                    catalog.create_table_transaction(self.table.identifier, rows, self.table.uri) as creation,
                    creation.update_spec() as spec,
                ):
                    for name in self.table.partition_by:
                        spec.add_field(name, IdentityTransform(), name)
            except (exceptions.TableAlreadyExistsError, exceptions.CommitFailedException):
                if not tries_left:
                    raise  # else another driver has created it just now
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with explained(self.table):
            try:
                yield
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
                raise MissingTableError(f"name: there is no Iceberg table {self.table.identifier} in the catalog") from None
            except (*_ICEBERG_ERRORS, SQLAlchemyError) as error:
                raise PipelineError(f"catalog: {self.table.identifier}: {first_line(error)}") from error


def _property(group: str) -> str:
    return f"{KEY}-position.{quote(group, safe='')}"


def _columns(found: IcebergTable) -> pa.Schema:
    return plain(schema_to_pyarrow(found.schema()))


def _without_retries(found: IcebergTable) -> IcebergTable:
    """Returns the table with a property that forbids PyIceberg to repeat a refused commit. The property is set only in memory."""
    properties = {**found.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = found.metadata.model_copy(update={"properties": properties})
    return IcebergTable(found.name(), metadata, found.metadata_location, found.io, found.catalog, found.config)


def _live_tasks(found: IcebergTable) -> list[FileScanTask]:
    """Returns the data files of the newest snapshot, with their row-level deletes."""
    return list(found.scan().plan_files())


def _data_file(found: IcebergTable, table: Table, file: DataFile) -> IcebergFile:
    schema, spec = found.schema(), found.spec()
    statistics = data_file_statistics_from_parquet_metadata(
        pq.read_metadata(pa.BufferReader(file.footer)),
        stats_columns=compute_statistics_plan(schema, found.metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.uri}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(spec, schema),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _logged(snapshot: Snapshot) -> LoggedCommit:
    summary = snapshot.summary
    properties = summary.additional_properties if summary is not None else {}
    added, removed = (int(properties.get(name, 0)) for name in ("added-records", "deleted-records"))
    if added == removed and (COMPACTION_KEY in properties or (summary is not None and summary.operation == Operation.REPLACE)):
        added = removed = 0
    commit = read_commit(properties.get(SUMMARY_KEY))
    return LoggedCommit(snapshot.sequence_number or 0, snapshot.timestamp_ms, commit, added, removed)


def _check_supported(found: IcebergTable, table: Table) -> None:
    """Raises `OutputError` for a table that is partitioned by anything but plain column values."""
    for field in found.spec().fields:
        if not isinstance(field.transform, IdentityTransform):
            raise OutputError(
                f"name: {table.identifier} is divided by {field.transform}, which a pipeline cannot write; add a column for it"
            )
