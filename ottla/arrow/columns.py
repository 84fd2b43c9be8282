"""Converts columns of rows to binary arrays of pyarrow, the input of the record encoder.

Spark and DataFrames pass strings and bytes in several Arrow types (`string`, `binary`, `fixed_size_binary`, the `large_` and `_view` kinds,
`null`, and dictionaries of these types), and arrays that are slices of other arrays. Headers are maps, or lists of structs of key and
value. Other types, and a header without a key, raise `RowsError`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.arrow.errors import RowsError


class HeaderColumn(NamedTuple):
    """The headers of all rows, concatenated, and the number of headers of each row."""

    keys: Any
    values: Any
    counts: Any


def find_column(rows: Any, name: str) -> Any | None:
    """Returns a column of a record batch, or None."""
    index = rows.schema.get_field_index(name)
    return None if index < 0 else rows.column(index)


def binary_column(rows: Any, name: str) -> Any | None:
    """Returns column `name` as a binary array; None if it does not exist or has the type null."""
    column = find_column(rows, name)
    return None if column is None or pa.types.is_null(column.type) else as_binary(column, name)


def as_binary(column: Any, name: str) -> Any:
    """Converts an array of strings or bytes to type binary, without a copy if possible."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind) or _is_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _narrowed(column)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    raise RowsError(f"column {name!r} is of type {kind}; it has to be a string or binary")


def _is_view(kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _narrowed(column: Any) -> Any:
    """Converts an array with 64-bit offsets to 32-bit offsets. If the array is a slice whose offsets exceed 32 bits, it is copied first."""
    try:
        return column.cast(pa.binary())
    except pa.ArrowInvalid:
        return column.take(pa.array(np.arange(len(column)))).cast(pa.binary())


def without_views(column: Any, name: str) -> Any:
    """Converts views to binary, also in headers that are lists of structs. Returns other columns unchanged."""
    kind = column.type
    if _is_view(kind):
        return as_binary(column, name)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type):
        fields = [pa.field(field.name, pa.binary() if _is_view(field.type) else field.type) for field in kind.value_type]
        return column.cast(pa.list_(pa.struct(fields))) if any(_is_view(field.type) for field in kind.value_type) else column
    return column


def blob_lengths(column: Any) -> Any:
    """Returns the length of each element in bytes (int64), -1 for null."""
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(-1)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def header_column(rows: Any) -> HeaderColumn | None:
    """Returns the column `headers`, or None if no row has any."""
    column = find_column(rows, "headers")
    if column is None or column.null_count == len(column):
        return None
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise _not_headers(kind)
    entries = column.flatten()
    fields = entries.type.names if pa.types.is_struct(entries.type) else []
    if "key" not in fields or "value" not in fields:
        raise _not_headers(kind)
    keys, values = (entries.flatten()[fields.index(name)] for name in ("key", "value"))
    keys = as_binary(keys, "headers.key")
    if keys.null_count:
        raise RowsError("column 'headers' has an entry without a key")
    counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return HeaderColumn(keys, as_binary(values, "headers.value"), counts) if len(keys) else None


def _not_headers(kind: Any) -> RowsError:
    return RowsError(f"column 'headers' is of type {kind}; it has to be an array of structs of 'key' (string) and 'value' (binary)")
