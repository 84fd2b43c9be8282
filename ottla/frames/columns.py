"""The columns of a frame: which stored columns they need, and how keys and values become text or typed JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.arrow.decode import arrow_schema
from ottla.frames.errors import FrameError, FrameUsageError

_JSON = {b"form": b"json"}
"""Metadata of a column that is parsed as JSON: its type alone does not say so, because JSON text is of the type string too."""
FORMS = {"key": ("bytes", "text"), "value": ("bytes", "text", "json")}


class Columns(NamedTuple):
    """`stored` are the fields that are decoded from record batches, `schema` has the fields of the frame."""

    stored: Any
    schema: Any

    def select(self, names: Sequence[str]) -> Columns:
        """Returns some of the columns. Raises `FrameUsageError` for a name that is none of them."""
        _check_names(names, self.schema.names)
        return Columns(pa.schema([self.stored.field(name) for name in names]), pa.schema([self.schema.field(name) for name in names]))

    def convert(self, rows: Any) -> Any:
        """Returns decoded rows with the types of the frame. Raises `FrameError` for a key or value that does not fit."""
        if self.stored is self.schema:
            return rows
        columns = [rows.column(field.name) if field.type == rows.schema.field(field.name).type else _converted(rows, field)
                   for field in self.schema]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def with_value_type(self, kind: Any) -> Columns:
        """Returns the columns with another type of the column `value`."""
        at = self.schema.get_field_index("value")
        return Columns(self.stored, self.schema.set(at, pa.field("value", kind, metadata=_JSON)))


def chosen_columns(names: Sequence[str], *, key: str, value: str) -> Columns:
    """Returns the columns of these names. Raises `FrameUsageError` for an unknown name or form."""
    forms = {"key": key, "value": value}
    for argument, form in forms.items():
        if form not in FORMS[argument]:
            raise FrameUsageError(f"{argument}: {form!r} is none of {', '.join(FORMS[argument])}")
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


def _converted(rows: Any, field: Any) -> Any:
    column = rows.column(field.name)
    if field.type != pa.string() or field.metadata == _JSON:
        from ottla.frames.json_values import parse_values

        return parse_values(column, field.type)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise FrameError(f"a {field.name} is not UTF-8; read it with {field.name}='bytes'") from None
