"""JSON as columns and back: each value is exactly one JSON value of the type, else it alone is marked."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla.schemas.errors import Misfit, SchemaUsageError
from ottla.schemas.json_columns import check_kind, decode_json, encode_json, json_misfit, json_schema_kind

ORDER = pa.struct([("a", pa.int64()), ("s", pa.string())])


@pytest.mark.parametrize("is_strict", [False, True])
def test_each_value_that_does_not_fit_is_marked(is_strict: bool) -> None:
    good = {b'{"a":1,"s":"x"}': {"a": 1, "s": "x"}, b' {"s":"\\u00e9"}\n ': {"a": None, "s": "é"}, b"null": None}
    bad = [
        b"", b" ", b"nope", b"1,2", b'{"a":"x"}', b'{"a":1.5}', b'{"a":1}{"a":2}', b'{"a":1}, {}', b'{"a":1', b'{"s":"\xff"}', b"[1]",
        b'{"a":1}]}{"v":[{"a":2}', b'{"a":1}]}null{"v":[{"a":2}',
    ]  # fmt: skip
    unknown = b'{"a":1,"more":{"a":[1,{}]}}'
    values = [*good, *bad, unknown, *good]
    array, is_bad = decode_json(pa.array([b"x", *values], pa.binary()).slice(1), ORDER, is_strict=is_strict)
    more = [None] if is_strict else [{"a": 1, "s": None}]
    assert array.to_pylist() == [*good.values(), *[None] * len(bad), *more, *good.values()]
    assert is_bad.tolist() == [*[False] * len(good), *[True] * len(bad), is_strict, *[False] * len(good)]
    for value in bad:
        reason = json_misfit(pa.array([value], pa.binary()), ORDER)
        assert reason and "\n" not in reason and "/v" not in reason


_KIND = pa.struct([
    ("i", pa.int32()), ("f", pa.float64()), ("b", pa.bool_()), ("s", pa.string()), ("l", pa.list_(pa.string())),
    ("o", pa.struct([("x", pa.int64()), ("d", pa.decimal128(9, 2))])), ("t", pa.timestamp("us", "UTC")), ("n", pa.null()),
])  # fmt: skip
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_ROWS = st.lists(st.one_of(st.none(), st.fixed_dictionaries({
    "i": st.one_of(st.none(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "f": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    "b": st.one_of(st.none(), st.booleans()), "s": st.one_of(st.none(), _TEXT),
    "l": st.one_of(st.none(), st.lists(st.one_of(st.none(), _TEXT), max_size=3)),
    "o": st.one_of(st.none(), st.fixed_dictionaries({
        "x": st.integers(-5, 5), "d": st.integers(-10**8, 10**8).map(lambda number: decimal.Decimal(number).scaleb(-2)),
    })),
    "t": st.one_of(st.none(), st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(datetime.UTC))),
    "n": st.none(),
})), max_size=5)  # fmt: skip


@given(_ROWS)
@settings(deadline=None)
def test_rows_become_json_and_come_back(rows: list[Any]) -> None:
    array = pa.array([{"s": "before"}, *rows], _KIND).slice(1)
    texts = encode_json(array)
    for text, row in zip(texts.to_pylist(), rows, strict=True):
        parsed = json.loads(text)
        assert (parsed is None) == (row is None)
        assert row is None or (parsed["s"], parsed["l"], parsed["b"], parsed["f"]) == (row["s"], row["l"], row["b"], row["f"])
    again, is_bad = decode_json(texts.cast(pa.binary()), _KIND)
    assert not is_bad.any() and again.equals(pa.array(rows, _KIND))


def test_maps_dates_dictionaries_and_numbers_that_are_not_finite() -> None:
    kind = pa.struct([
        ("m", pa.map_(pa.string(), pa.list_(pa.int64()))), ("d", pa.date32()), ("f", pa.float32()), ("t", pa.timestamp("us")),
        ("large", pa.large_list(pa.large_string())), ("k", pa.map_(pa.int32(), pa.string())),
    ])  # fmt: skip
    day, noon = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 12)
    row = {"m": [('a"', [1]), ("b", None)], "d": day, "f": float("nan"), "t": noon, "large": ["x"], "k": [(1, "y")]}
    empty = {"m": [], "d": None, "f": float("inf"), "t": None, "large": [], "k": None}
    first, second = map(json.loads, encode_json(pa.array([row, empty], kind)).to_pylist())
    assert first["m"] == {'a"': [1], "b": None} and first["k"] == {"1": "y"} and first["large"] == ["x"]
    assert (first["d"], first["f"], first["t"]) == ("2026-01-02", None, "2026-01-02T12:00:00.000000")
    assert second == {"m": {}, "d": None, "f": None, "t": None, "large": [], "k": None}
    assert encode_json(pa.array(["x", None]).dictionary_encode()).to_pylist() == ['"x"', "null"]
    with pytest.raises(Misfit, match="of: JSON has no form for binary"):
        encode_json(pa.array([{"of": b"x"}]))


def test_the_type_of_a_json_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"}, "price": {"type": ["number", "null"]}, "at": {"type": "string", "format": "date-time"},
            "state": {"enum": ["new", "paid"]}, "tags": {"type": "array", "items": {"type": "string"}}, "none": {"type": "null"},
            "of": {"$ref": "#/$defs/of"}, "may": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        },
        "$defs": {"of": {"properties": {"x": {"type": "integer"}}}},
    }  # fmt: skip
    assert json_schema_kind(schema) == pa.struct([
        ("id", pa.int64()), ("price", pa.float64()), ("at", pa.timestamp("us", "UTC")), ("state", pa.string()),
        ("tags", pa.list_(pa.string())), ("none", pa.null()), ("of", pa.struct([("x", pa.int64())])), ("may", pa.bool_()),
    ])  # fmt: skip


@pytest.mark.parametrize(
    "schema",
    [{}, True, {"type": ["string", "integer"]}, {"type": "object"}, {"type": "array"}, {"$ref": "#/none"},
     {"type": "array", "items": {"$ref": "#"}}, {"type": "colour"}, {"oneOf": [{"type": "string"}, {"type": "integer"}]}],
)  # fmt: skip
def test_schemas_that_no_column_has(schema: Any) -> None:
    with pytest.raises(SchemaUsageError):
        json_schema_kind(schema)


def test_types_that_json_is_not_read_as() -> None:
    check_kind(_KIND)
    for kind in (pa.binary(), pa.date32(), pa.map_(pa.string(), pa.string()), pa.list_(pa.struct([("x", pa.time64("us"))]))):
        with pytest.raises(SchemaUsageError, match="JSON is not read as"):
            check_kind(kind)
