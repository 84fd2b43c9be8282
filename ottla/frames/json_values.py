"""Values in JSON as a typed column: Arrow's parser reads many at once, with the types that a sample of the topic has.

Each value becomes the member `v` of an object on a line of its own. If a value is not exactly one JSON value, the parser fails or returns
more rows than there are values, and the values are refused. Otherwise rows and values correspond one to one. Text that looks like a time
stays text: only a schema could say that all values are times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ottla.frames.errors import FrameError

SAMPLE_ROWS = 10_000
"""Maximum number of values of each partition that decide the types of the fields. They are from the first record batch of Arrow."""
_BYTES_MAX = 1 << 30
"""Larger columns are split, so that 32-bit offsets are sufficient."""


def inferred_type(values: Any) -> Any:
    """Returns the type of the JSON values in a binary array: for objects a struct. Raises `FrameError` if they have no common type."""
    return _as_text(_parsed(values, None).type) if len(values) else pa.null()


def parse_values(values: Any, kind: Any) -> Any:
    """Returns JSON values as an array of this type; null stays null. Raises `FrameError` if one does not fit it or is not JSON."""
    if values.nbytes > _BYTES_MAX and len(values) > 1:
        half = len(values) // 2
        return pa.concat_arrays([parse_values(values.slice(0, half), kind), parse_values(values.slice(half), kind)])
    return _parsed(values, kind)


def _parsed(values: Any, kind: Any) -> Any:
    lines = pc.binary_join_element_wise(_text(b'{"v":'), values.fill_null(b"null"), _text(b"}\n"), _text(b""))
    _, ends, data = lines.buffers()
    size = int(np.frombuffer(ends, np.int32, len(values) + 1)[-1])
    if kind is None:
        parsing = pj.ParseOptions(newlines_in_values=True)
    else:
        parsing = pj.ParseOptions(explicit_schema=pa.schema([("v", kind)]), newlines_in_values=True, unexpected_field_behavior="error")
    reading = pj.ReadOptions(use_threads=False, block_size=size + 1)
    try:
        table = pj.read_json(pa.BufferReader(data.slice(0, size)), read_options=reading, parse_options=parsing)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = next(iter(str(error).splitlines()), "").replace("/v/", "").replace("(/v)", "")
        raise FrameError(f"a value does not fit: {reason}; read it with value='text'") from None
    if table.num_rows != len(values):
        raise FrameError("a value is not one JSON value; read it with value='text'")
    column = table.column("v").combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _text(data: bytes) -> Any:
    return pa.scalar(data, pa.binary())


def _as_text(kind: Any) -> Any:
    """Returns the type with text instead of times, also in structs and lists."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_text(field.type)) for field in kind])
    return pa.list_(_as_text(kind.value_type)) if pa.types.is_list(kind) else kind
