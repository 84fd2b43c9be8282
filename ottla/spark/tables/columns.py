"""Compares the columns of rows with the columns of a table, as Arrow schemas: which types fit, and which columns the table lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ottla.spark.errors import OutputError

_FORBIDDEN = " ,;{}()\n\t="
"""Characters that the column names of a Delta table cannot have."""

_CAN_DIVIDE = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
"""The types of partition columns: those whose values have a text form."""

_SIMPLE = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Spark's types in the JSON of a schema, and the types of Arrow that a table stores them as."""


def spark_columns(schema: Any) -> pa.Schema:
    """Returns the columns of a DataFrame (`StructType`), all of them nullable. Raises `OutputError` for a type that has no place in a
    table."""
    return pa.schema([pa.field(field["name"], _arrow_type(field["type"], field["name"])) for field in schema.jsonValue()["fields"]])


def _arrow_type(found: Any, column: str) -> pa.DataType:
    if isinstance(found, dict):
        kind = found["type"]
        if kind == "array":
            return pa.list_(_arrow_type(found["elementType"], column))
        if kind == "map":
            return pa.map_(_arrow_type(found["keyType"], column), _arrow_type(found["valueType"], column))
        if kind == "struct":
            return pa.struct([pa.field(field["name"], _arrow_type(field["type"], column)) for field in found["fields"]])
    elif found in _SIMPLE:
        return _SIMPLE[found]
    elif found.startswith("decimal("):
        precision, scale = found[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    raise OutputError(f"column {column} is of type {found}, which a table has no place for; cast it in the query")


def with_types(columns: pa.Schema, replaced: Mapping[pa.DataType, pa.DataType]) -> pa.Schema:
    """Returns columns with some of their types replaced, also inside of lists, maps and structs. Values inside of these may be null. Names
    and metadata are kept."""
    return pa.schema([field.with_type(_replaced(field.type, replaced)) for field in columns])


def plain(columns: pa.Schema) -> pa.Schema:
    """Replaces Arrow's large types (`large_string` and others) by the plain ones, which differ only in memory; returns the columns."""
    return with_types(columns, {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()})


def _replaced(found: pa.DataType, replaced: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    def inner(field: pa.Field, nullable: bool = True) -> pa.Field:
        return pa.field(field.name, _replaced(field.type, replaced), nullable, field.metadata)

    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return pa.list_(inner(found.value_field))
    if pa.types.is_map(found):
        return pa.map_(inner(found.key_field, False), inner(found.item_field))
    if pa.types.is_struct(found):
        return pa.struct([inner(field) for field in found.fields])
    return replaced.get(found, found)


def check_columns(rows: pa.Schema, table: pa.Schema | None, partition_by: Sequence[str], *, may_add: bool = False) -> list[pa.Field]:
    """Checks the columns of the rows against the columns of the table, or for a table to be created (None). Returns the columns that the
    table lacks. Raises `OutputError` if the rows do not fit the table, or if it lacks columns that may not be added."""
    for name in rows.names:
        if rows.names.count(name) > 1:
            raise OutputError(f"column {name} is there twice; rename one of them")
        if any(character in _FORBIDDEN for character in name):
            raise OutputError(f"column {name!r} has a character that a table's columns cannot have ({_FORBIDDEN!r}); rename it")
    for name in partition_by:
        if name not in rows.names:
            raise OutputError(f"partition_by: the rows have no column {name}")
        kind = rows.field(name).type
        if not any(can_divide(kind) for can_divide in _CAN_DIVIDE):
            raise OutputError(f"partition_by: column {name} is of type {kind}; a string, whole number, boolean or date can divide a table")
    if partition_by and set(rows.names) <= set(partition_by):
        raise OutputError("partition_by: names all columns; a table needs another one")
    return [] if table is None else _missing(rows, table, may_add=may_add)


def _missing(rows: pa.Schema, table: pa.Schema, *, may_add: bool) -> list[pa.Field]:
    known = {name.lower(): name for name in table.names}
    missing = []
    for field in rows:
        name = known.get(field.name.lower())
        if name is None:
            missing.append(field)
        elif name != field.name:
            raise OutputError(f"column {field.name} is called {name} in the table; rename it in the query")
        elif not field.type.equals(table.field(name).type):
            raise OutputError(f"column {name} is of type {table.field(name).type} in the table and {field.type} in the rows; cast it")
    required = [field.name for field in table if not field.nullable and field.name not in rows.names]
    if required:
        raise OutputError(f"column {required[0]} may not be null in the table, and the rows do not have it")
    if missing and not may_add:
        names = ", ".join(field.name for field in missing)
        raise OutputError(f"add_columns: the table has no column {names}; Table(add_columns=True) adds it, or leave it out of the rows")
    return missing


def fitted(rows: pa.RecordBatch, columns: pa.Schema) -> pa.Table:
    """Returns rows with the table's columns in the table's order, null where the rows have no such column. Raises `OutputError` for a null
    or a value that a column cannot have."""
    arrays = []
    for field in columns:
        if field.name not in rows.schema.names:
            arrays.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            raise OutputError(f"column {field.name} has a null, which the table does not allow")
        try:
            arrays.append(column if column.type.equals(field.type) else column.cast(field.type))
        except pa.ArrowException as error:
            raise OutputError(f"column {field.name}: a value does not fit the type {field.type}: {error}") from None
    return pa.Table.from_arrays(arrays, schema=columns)
