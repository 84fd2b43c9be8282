"""Chooses the columns of a frame: which fields of record batches they need, and how keys and values are converted to text or typed values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.arrow.decode import arrow_schema
from ottla.frames.errors import FrameError, FrameUsageError, UnfitValueError
from ottla.schemas.value_options import FORMATS

FORMS = {"key": ("bytes", "text"), "value": ("bytes", "text", *FORMATS)}


class Columns(NamedTuple):
    """The columns of a frame. `stored` are the fields that are decoded from record batches, `schema` has the fields of the frame. `values`
    decodes typed values; a value that does not fit becomes null, or with `is_fatal` raises an error.
    """

    stored: Any
    schema: Any
    values: Any = None
    is_fatal: bool = True

    def select(self, names: Sequence[str]) -> Columns:
        """Returns some of the columns. Raises `FrameUsageError` for an unknown name."""
        _check_names(names, self.schema.names)
        wanted = [*names, "offset"] if self.values is not None and "value" in names and "offset" not in names else names
        known = arrow_schema(include_headers=True)
        stored, schema = pa.schema([known.field(name) for name in wanted]), pa.schema([self.schema.field(name) for name in names])
        return self._replace(stored=stored, schema=schema)

    def convert(self, rows: Any) -> Any:
        """Returns decoded rows with the types of the frame. Raises `FrameError` for a key or value that does not fit."""
        if self.stored is self.schema:
            return rows
        columns = [self._converted(rows, field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _converted(self, rows: Any, field: Any) -> Any:
        column = rows.column(field.name)
        if field.name == "value" and self.values is not None:
            found, is_bad = self.values.decode(column)
            if self.is_fatal and is_bad.any():
                first = int(is_bad.argmax())
                raise UnfitValueError(rows.column("offset")[first].as_py(), self.values.misfit(column[first].as_py()))
            return found
        return column if field.type == column.type else _as_text(column, field.name)

    def with_values(self, values: Any, *, is_fatal: bool) -> Columns:
        """Returns the columns with values that a `ValueDecoder` decodes."""
        at = self.schema.get_field_index("value")
        typed = self._replace(schema=self.schema.set(at, pa.field("value", values.kind)), values=values, is_fatal=is_fatal)
        return typed.select(self.schema.names)


def chosen_columns(names: Sequence[str], *, key: str, value: str) -> Columns:
    """Returns the columns with these names; typed values are bytes until `with_values` is called. Raises `FrameUsageError` for an unknown
    name or form.
    """
    forms = {"key": key, "value": value}
    for argument, form in forms.items():
        if form not in FORMS[argument]:
            raise FrameUsageError(f"{argument}_format: {form!r} is none of {', '.join(FORMS[argument])}")
    known = arrow_schema(include_headers=True)
    if isinstance(names, str):
        raise FrameUsageError(f"columns: a list of names, such as [{names!r}]")
    _check_names(names, known.names)
    stored = pa.schema([known.field(name) for name in names])
    return Columns(stored, pa.schema([pa.field(one.name, pa.string()) if forms.get(one.name) == "text" else one for one in stored]))


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise FrameUsageError(f"columns: there is no {unknown[0]!r}, only {', '.join(known)}")
    if len(set(names)) < len(names) or not names:
        raise FrameUsageError("columns: each name once, and at least one")


def _as_text(column: Any, name: str) -> Any:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise FrameError(f"a {name} is not UTF-8; read it with {name}_format='bytes'") from None
