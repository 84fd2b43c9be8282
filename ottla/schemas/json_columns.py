"""Converts JSON values to Arrow columns, and rows to JSON. Arrow's parser reads many values at once. For this, each value is put on its own
line as the only element of a list: `{"v": [VALUE]}`. If some text is not exactly one JSON value, the parser fails, a list has not exactly
one element, or there are more lines than values. Such a value is then found by bisection, and marked.

Columns are converted to text with Arrow's functions for strings, one step for each field, whatever the number of rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ottla.schemas.errors import Misfit, SchemaUsageError, first_line

_BYTES_MAX = 1 << 30
"""Larger columns are split, so that 32-bit offsets are sufficient."""


def inferred_kind(values: Any) -> Any:
    """Returns the common type of the JSON values in a binary array without nulls: a struct if they are objects. Raises `Misfit` if they
    have no common type.

    Text that looks like a time stays text: only a schema could say that all values are times.
    """
    return _as_text(_parsed(values, None).type) if len(values) else pa.null()


def check_kind(kind: Any) -> None:
    """Raises `SchemaUsageError` if Arrow's parser cannot make this type from JSON."""
    if pa.types.is_struct(kind):
        for field in kind:
            check_kind(field.type)
    elif pa.types.is_list(kind):
        check_kind(kind.value_type)
    elif not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
        or pa.types.is_string(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind)
    ):  # fmt: skip
        raise SchemaUsageError(f"JSON is not read as {kind}; take a string, and convert it in the query")


def decode_json(values: Any, kind: Any, *, is_strict: bool = False) -> tuple[Any, Any]:
    """Returns JSON values (a binary array without nulls) as an array of this type, and which of them do not fit. Members that the type does
    not have are ignored; with `is_strict` a value with such members does not fit.
    """
    if values.nbytes > _BYTES_MAX and len(values) > 1:
        return _halves(values, kind, is_strict)
    try:
        return _parsed(values, kind, is_strict), np.zeros(len(values), np.bool_)
    except Misfit:
        return _halves(values, kind, is_strict) if len(values) > 1 else (pa.nulls(1, kind), np.ones(1, np.bool_))


def json_misfit(value: Any, kind: Any, *, is_strict: bool = False) -> str:
    """Returns the reason why a value (a binary array with one element) does not fit."""
    try:
        _parsed(value, kind, is_strict)
    except Misfit as error:
        return str(error)
    return "it does not fit"


def _halves(values: Any, kind: Any, is_strict: bool) -> tuple[Any, Any]:
    half = len(values) // 2
    (first, is_bad), (second, is_bad_too) = (
        decode_json(some, kind, is_strict=is_strict) for some in (values.slice(0, half), values.slice(half))
    )
    return pa.concat_arrays([first, second]), np.concatenate([is_bad, is_bad_too])


def _parsed(values: Any, kind: Any, is_strict: bool = True) -> Any:
    if not len(values):
        return pa.array([], kind)
    try:
        texts = values.cast(pa.string())  # the parser does not check that strings are UTF-8
    except pa.ArrowInvalid:
        raise Misfit("it is not UTF-8") from None
    lines = pc.binary_join_element_wise('{"v":[', texts, "]}\n", "")
    _, ends, data = lines.buffers()
    size = int(np.frombuffer(ends, np.int32, len(values) + 1)[-1])
    schema = None if kind is None else pa.schema([("v", pa.list_(kind))])
    parsing = pj.ParseOptions(
        explicit_schema=schema, newlines_in_values=True,
        unexpected_field_behavior="infer" if kind is None else "error" if is_strict else "ignore",
    )  # fmt: skip
    reading = pj.ReadOptions(use_threads=False, block_size=size + 1)
    try:
        table = pj.read_json(pa.BufferReader(data.slice(0, size)), read_options=reading, parse_options=parsing)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Misfit(re.sub(r"/v/\[\]/?|\(/v/\[\]\)| in row \d+$", "", first_line(error))) from None
    lists = table.column("v").combine_chunks() if table.column_names == ["v"] else pa.array([], pa.list_(pa.null()))
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    if len(lists) != len(values) or not pc.all(pc.equal(pc.list_value_length(lists), 1)).as_py():
        raise Misfit("it is not one JSON value")
    return lists.flatten()


def _as_text(kind: Any) -> Any:
    """Returns the type with text instead of times, also in structs and lists."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_text(field.type)) for field in kind])
    return pa.list_(_as_text(kind.value_type)) if pa.types.is_list(kind) else kind


# JSON Schema

_SIMPLE = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "null": pa.null()}


def json_schema_kind(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """Returns the Arrow type of a JSON Schema: `properties` become a struct, a string of `format` date-time a timestamp. Only types are
    used; other keywords are not checked. Raises `SchemaUsageError` for a schema that allows several types, or none."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
        raise SchemaUsageError("a column needs a JSON Schema with one type for each member, and none that contains itself")
    if isinstance(schema.get("$ref"), str):
        return json_schema_kind(_referred(root, schema["$ref"]), root, depth + 1)
    names = schema.get("type", "object" if "properties" in schema else "string" if "enum" in schema else None)
    chosen = [name for name in ([names] if isinstance(names, str) else names or []) if name != "null"]
    branches = [one for one in schema.get("oneOf", schema.get("anyOf", [])) if one != {"type": "null"}]
    if not chosen and len(branches) == 1:
        return json_schema_kind(branches[0], root, depth + 1)
    if chosen == ["object"] and isinstance(schema.get("properties"), Mapping):
        return pa.struct([(name, json_schema_kind(below, root, depth + 1)) for name, below in schema["properties"].items()])
    if chosen == ["array"] and "items" in schema:
        return pa.list_(json_schema_kind(schema["items"], root, depth + 1))
    if chosen == ["string"] and schema.get("format") == "date-time":
        return pa.timestamp("us", "UTC")
    if not chosen and names:
        return pa.null()
    if len(chosen) == 1 and chosen[0] in _SIMPLE:
        return _SIMPLE[chosen[0]]
    advice = "a member needs one type, an object `properties`, an array `items`"
    raise SchemaUsageError(f"no column can hold a value of {dict(schema)!r:.120}; {advice}")


_DEPTH_MAX = 100


def _referred(root: Any, place: str) -> Any:
    found = root
    try:
        for word in place.removeprefix("#").strip("/").split("/"):
            found = found[word.replace("~1", "/").replace("~0", "~")] if word else found
    except (KeyError, TypeError):
        raise SchemaUsageError(f"the JSON Schema has nothing at {place!r}") from None
    return found


# Writing


def encode_json(array: Any) -> Any:
    """Returns each element as JSON text (UTF-8, without spaces). Null, and a number that is not finite, is the literal `null`. Raises
    `Misfit` for a type that JSON has no form for, such as bytes."""
    kind = array.type
    types = pa.types
    if types.is_dictionary(kind):
        return encode_json(array.dictionary_decode())
    if types.is_null(kind):
        return pa.array(["null"] * len(array), pa.string())
    return pc.if_else(pc.is_valid(array), _text(array), _NULL)


_NULL = pa.scalar("null", pa.string())


def _text(array: Any) -> Any:
    kind, types = array.type, pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return array.cast(pa.string())
    if types.is_floating(kind):
        return pc.if_else(pc.is_finite(array), array.cast(pa.string()), _NULL)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _quoted(_escaped(array.cast(pa.string())))
    if types.is_date(kind) or types.is_time(kind):
        return _quoted(array.cast(pa.string()))
    if types.is_timestamp(kind):
        plain = array.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit)) if kind.tz else array
        text = pc.replace_substring(plain.cast(pa.string()), " ", "T")
        return _quoted(pc.binary_join_element_wise(text, "Z", "") if kind.tz else text)
    if types.is_struct(kind):
        return _objects(array)
    if types.is_map(kind):
        return _maps(array)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _joined(array, encode_json(array.flatten()), "[", "]")
    raise Misfit(f"JSON has no form for {kind}")


def _objects(array: Any) -> Any:
    pieces: list[Any] = ["{"]
    for number, (field, column) in enumerate(zip(array.type, array.flatten(), strict=True)):
        name = _quoted(_escaped(pa.array([field.name])))[0].as_py()
        try:
            pieces += [f"{',' if number else ''}{name}:", encode_json(column)]
        except Misfit as error:
            raise Misfit(f"{field.name}: {error}") from None
    columns = [pa.scalar(piece) if isinstance(piece, str) else piece for piece in [*pieces, "}", ""]]
    joined = pc.binary_join_element_wise(*columns)
    return joined if isinstance(joined, pa.Array) else pa.array(["{}"] * len(array), pa.string())


def _maps(array: Any) -> Any:
    lists = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    keys, values = lists.flatten().flatten()
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        keys = keys.cast(pa.string())
    return _joined(lists, pc.binary_join_element_wise(_quoted(_escaped(keys)), encode_json(values), ":"), "{", "}")


def _joined(lists: Any, items: Any, opening: str, closing: str) -> Any:
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    texts = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), ",")
    return pc.binary_join_element_wise(opening, texts, closing, "")


def _quoted(texts: Any) -> Any:
    return pc.binary_join_element_wise('"', texts, '"', "")


_ESCAPES = {"\\": "\\\\", '"': '\\"', **{chr(code): f"\\u{code:04x}" for code in range(32)}}


def _escaped(texts: Any) -> Any:
    if not pc.any(pc.match_substring_regex(texts, '[\\x00-\\x1f"\\\\]')).as_py():
        return texts
    for character, escape in _ESCAPES.items():
        if pc.any(pc.match_substring(texts, character)).as_py():
            texts = pc.replace_substring(texts, character, escape)
    return texts
