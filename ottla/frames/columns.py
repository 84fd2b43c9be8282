"""The columns of a frame: which stored columns they need, and how keys and values become text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.arrow.decode import arrow_schema
from ottla.frames.errors import FrameError, FrameUsageError

FORMS = ("bytes", "text")


class Columns(NamedTuple):
    """`stored` are the fields that are decoded from record batches, `schema` those of the frame."""

    stored: Any
    schema: Any

    def select(self, names: Sequence[str]) -> Columns:
        """Returns some of the columns. Raises `FrameUsageError` for a name that is none of them."""
        _check_names(names, self.schema.names)
        return Columns(pa.schema([self.stored.field(name) for name in names]), pa.schema([self.schema.field(name) for name in names]))

    def convert(self, rows: Any) -> Any:
        """Returns decoded rows with the types of the frame. Raises `FrameError` for a key or value that is not text."""
        if self.stored is self.schema:
            return rows
        columns = [_as_text(rows, name) if field.type != rows.schema.field(name).type else rows.column(name)
                   for name, field in zip(self.schema.names, self.schema, strict=True)]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def chosen_columns(names: Sequence[str], *, key: str, value: str) -> Columns:
    """Returns the columns of these names. Raises `FrameUsageError` for an unknown name or form."""
    forms = {"key": key, "value": value}
    for argument, form in forms.items():
        if form not in FORMS:
            raise FrameUsageError(f"{argument}: {form!r} is none of {', '.join(FORMS)}")
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


def _as_text(rows: Any, name: str) -> Any:
    try:
        return rows.column(name).cast(pa.string())
    except pa.ArrowInvalid:
        raise FrameError(f"a {name} is not UTF-8; read it with {name}='bytes'") from None
