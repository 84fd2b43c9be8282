"""Runs `ottla sql`: a SELECT in DuckDB whose tables are topics.

DuckDB parses the query. Each table that the query names becomes a frame, unless a file has that name, and the plan of the query says which
columns are decoded. DuckDB reads the frames as streams, so memory is bounded by the query's own state; DuckDB writes to disk what does not
fit. A topic that a query names twice is read twice, up to the same offsets.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ottla.base.errors import OttlaError
from ottla.frames.errors import FrameError, FrameUsageError
from ottla.frames.frame import Frame
from ottla.frames.packages import library

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of a topic as a table. The first one is cheap: DuckDB reads it for `count(*)`."""
ROWS = 1000
"""Maximum number of rows that `Result.rows` yields together."""


class Result(NamedTuple):
    """The result of a query: the names of its columns, and an iterator over chunks of rows, which DuckDB computes meanwhile."""

    columns: Sequence[str]
    rows: Iterator[list[tuple[Any, ...]]]


def run_query(text: str, open_frame: Callable[[str], Frame]) -> Result:
    """Runs one SELECT; `open_frame` returns the frame of a topic, with the columns `COLUMNS`.

    Raises `FrameUsageError` for text that is not one SELECT, `FrameError` with DuckDB's message if the query fails, and the errors of
    `open_frame` and `Frame.to_reader`. Iterating over the rows raises the same errors.
    """
    duckdb = library("duckdb")
    connection = duckdb.connect()
    tables: dict[str, _Table] = {}
    with _reported(duckdb, tables):
        connection.execute("set TimeZone = 'UTC'").fetchall()
        for name in _topics(connection, text):
            tables[name] = _Table(open_frame(name))
            connection.register(name, tables[name])
        if tables:
            needed = _needed_columns(connection, text)
            for table in tables.values():
                table.needed = needed
        answer = connection.execute(text)
    return Result([column[0] for column in answer.description], _fetched(duckdb, answer, tables))


class _Table:
    """The Arrow stream that DuckDB reads for a frame. Columns that are not in `needed` are null instead of decoded.

    It keeps the error that ends a stream, because DuckDB reports only its text.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.needed: Collection[str] = COLUMNS
        self.failure: OttlaError | None = None

    def __arrow_c_schema__(self) -> object:
        return self._frame.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = library("pyarrow").RecordBatchReader.from_batches(self._frame.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[Any]:
        pyarrow, schema = library("pyarrow"), self._frame.schema
        read = self._frame.select([name for name in schema.names if name in self.needed])
        try:
            for rows in read.to_reader():
                columns = [
                    rows.column(field.name) if field.name in self.needed else pyarrow.nulls(rows.num_rows, field.type) for field in schema
                ]
                yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)
        except OttlaError as error:
            self.failure = error
            raise


@contextmanager
def _reported(duckdb: Any, tables: dict[str, _Table]) -> Iterator[None]:
    """Converts DuckDB's errors to one line, or to the error of the frame that caused them."""
    try:
        yield
    except duckdb.Error as error:
        failure = next((table.failure for table in tables.values() if table.failure is not None), None)
        if failure is not None:
            raise failure from None
        raise FrameError(_one_line(str(error)) or type(error).__name__) from None


def _one_line(message: str) -> str:
    """Returns the first line of DuckDB's message, with the names that DuckDB proposes, or with a hint for a field of a column of text."""
    lines = message.splitlines()
    if found := re.search(r"Cannot extract field '(.*?)' from expression \"(key|value)\"", message):
        field, column = found.groups()
        typed = "give --value-format json, or " if column == "value" else ""
        return f"{lines[0]}; {column} is not decoded: {typed}write {column}->>'{field}'"
    return "; ".join([*lines[:1], *(line for line in lines[1:] if line.startswith("Candidate "))])


def _fetched(duckdb: Any, answer: Any, tables: dict[str, _Table]) -> Iterator[list[tuple[Any, ...]]]:
    with _reported(duckdb, tables):
        while rows := answer.fetchmany(ROWS):
            yield rows


def _topics(connection: Any, text: str) -> list[str]:
    """Returns the topics that the query names: its tables, except names of WITH, files and DuckDB's own tables. Raises `FrameUsageError`
    for text that is not one SELECT, and for names that cannot be topics."""
    found = json.loads(connection.execute("select json_serialize_sql(?)", [text]).fetchall()[0][0])
    if found.get("error_type") == "parser":
        raise FrameUsageError(f"the query is not valid SQL: {found['error_message']}")
    if found.get("error") or len(found["statements"]) != 1:
        raise FrameUsageError("the query has to be one SELECT; topics are only read")
    nodes = list(_nodes(found))
    own = {entry["key"] for node in nodes for entry in node.get("cte_map", {}).get("map", ())}
    tables = [node for node in nodes if node.get("type") == "BASE_TABLE"]
    qualified = [".".join(filter(None, (node["catalog_name"], node["schema_name"], node["table_name"]))) for node in tables]
    names = [whole for node, whole in zip(tables, qualified, strict=True) if not (node["schema_name"] or os.path.exists(whole))]
    dotted = [whole for node, whole in zip(tables, qualified, strict=True) if node["schema_name"] not in ("", *_SCHEMAS)]
    if dotted:
        raise FrameUsageError(f'topic names with dots are written in double quotes: "{dotted[0]}"')
    names = sorted({name for name in names if name not in own})
    lower = {name.lower(): name for name in names}
    if len(lower) < len(names):
        raise FrameUsageError("SQL ignores case in names; name only one of the topics that differ in case alone")
    return names


_SCHEMAS = ("information_schema", "pg_catalog", "main")
"""Schemas of DuckDB's own tables."""


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yields all objects of a JSON value."""
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(part)


def _needed_columns(connection: Any, text: str) -> set[str]:
    """Returns the columns that the plan of the query reads from any of the frames. Returns all columns if the plan names none, or names
    unknown columns.

    A plan may name fields of a struct: `value.amount`.
    """
    plan = json.loads(connection.execute(f"explain (format json) {text}").fetchall()[0][1])
    scans = [node["extra_info"] for node in _nodes(plan) if node.get("name") == "PYTHON_ARROW_SCAN"]
    projections = [scan.get("Projections", []) for scan in scans]
    names = {name for some in projections for name in ([some] if isinstance(some, str) else some)}
    needed = {column for column in COLUMNS if any(name == column or name.startswith(f"{column}.") for name in names)}
    is_understood = all(name.partition(".")[0] in needed for name in names)
    return needed if needed and is_understood else {*COLUMNS}
