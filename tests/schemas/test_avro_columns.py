"""Columns of Avro agree with fastavro, for any schema and values, and damaged values are marked alone."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa

from ottla.schemas.avro_columns import avro_node
from ottla.schemas.errors import Misfit, SchemaUsageError
from ottla.schemas.formats import avro
from ottla.schemas.pieces import join
from ottla.schemas.values import decode_avro

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def node_of(schema: Any) -> Any:
    return avro_node(*avro(json.dumps(schema), "schema").definition)


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def by_fastavro(schema: Any, data: bytes) -> Any:
    return avro(json.dumps(schema), "schema").decoder()(data)


# Any schema: a strategy of (schema, pairs of fastavro's value and Arrow's)

_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_LEAVES: list[tuple[Any, Any]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.one_of(_LONG, st.integers(-200, 200))),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    ("bytes", st.binary(max_size=5)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(datetime.UTC))),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes()),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2},
     st.integers(1 - 10**30, 10**30 - 1).map(lambda number: decimal.Decimal(number).scaleb(-2, decimal.Context(40)))),
]  # fmt: skip


@st.composite
def schemas(draw: Any, depth: int = 2) -> tuple[Any, Any]:
    """A schema, and a strategy of pairs: the value as fastavro writes it, and as Arrow has it."""
    kinds = ["leaf", "leaf", "enum", "fixed", *(["record", "array", "map", "optional", "union"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    name = "N"  # `renamed` gives each type its own
    if kind == "leaf":
        schema, values = draw(st.sampled_from(_LEAVES))
        return schema, values.map(lambda value: (value, value))
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from(["A", "B"]).map(lambda value: (value, value))
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3).map(lambda value: (value, value))
    if kind == "union":
        members = draw(st.lists(st.sampled_from(_LEAVES[:6]), min_size=2, max_size=3, unique_by=lambda leaf: str(leaf[0])))
        one = st.integers(0, len(members) - 1).flatmap(
            lambda number: members[number][1].map(
                lambda value: ((members[number][0], value), {f"member{n}": value if n == number else None for n in range(len(members))})
            )
        )
        return ["null", *(member[0] for member in members)], st.one_of(st.just((None, None)), one)
    inner, values = draw(schemas(depth=depth - 1))
    if kind == "optional" and not isinstance(inner, list):
        schema = draw(st.sampled_from([["null", inner], [inner, "null"]]))
        return schema, st.one_of(st.just((None, None)), values)
    if kind == "map":
        keyed = st.dictionaries(st.text("abc", max_size=2), values, max_size=3)
        return {"type": "map", "values": inner}, keyed.map(
            lambda found: ({key: one for key, (one, _) in found.items()}, [(key, other) for key, (_, other) in found.items()])
        )
    if kind == "record":
        second, more = draw(schemas(depth=depth - 1))
        record = {"type": "record", "name": name, "fields": [{"name": "a", "type": inner}, {"name": "b", "type": second}]}
        return record, st.tuples(values, more).map(
            lambda pair: ({"a": pair[0][0], "b": pair[1][0]}, {"a": pair[0][1], "b": pair[1][1]})
        )
    return {"type": "array", "items": inner}, st.lists(values, max_size=4).map(
        lambda found: ([one for one, _ in found], [other for _, other in found])
    )


def renamed(schema: Any, numbers: Any) -> Any:
    if isinstance(schema, list):
        return [renamed(one, numbers) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: f"N{next(numbers)}" if key == "name" and value == "N" else renamed(value, numbers) for key, value in schema.items()}


@st.composite
def columns(draw: Any) -> tuple[Any, list[Any], list[Any]]:
    schema, values = draw(schemas())
    schema = renamed(schema, itertools.count())
    pairs = draw(st.lists(values, max_size=6))
    return schema, [one for one, _ in pairs], [other for _, other in pairs]


@given(columns())
@settings(deadline=None, max_examples=150)
def test_any_schema_is_read_and_written(column: tuple[Any, list[Any], list[Any]]) -> None:
    schema, written, wanted = column
    node = node_of(schema)
    data = [encoded(schema, value) for value in written]
    array, is_bad = decode_avro(pa.array([b"xx", *data], pa.binary()).slice(1), node)
    assert not is_bad.any()
    array.validate(full=True)
    assert array.equals(pa.array(wanted, node.kind))
    again = join(node.write(array)).to_pylist() if data else []
    assert [by_fastavro(schema, one) for one in again] == [by_fastavro(schema, one) for one in data]


@given(columns(), st.data())
@settings(deadline=None, max_examples=150)
def test_damaged_values_are_marked_and_others_are_not(column: tuple[Any, list[Any], list[Any]], data: Any) -> None:
    schema, written, wanted = column
    node = node_of(schema)
    good = [encoded(schema, value) for value in written]
    broken = [data.draw(st.one_of(st.binary(max_size=20), st.just(one[:-1]), st.just(one + b"\0"))) for one in good]
    mixed = [one for pair in zip(good, broken, strict=True) for one in pair]
    array, is_bad = decode_avro(pa.array(mixed, pa.binary()), node)
    assert not is_bad[::2].any()
    assert array.take(pa.array(range(0, len(mixed), 2), pa.int64())).equals(pa.array(wanted, node.kind))
    for one, is_one_bad in zip(broken, is_bad[1::2], strict=True):
        if not is_one_bad and "logicalType" not in json.dumps(schema):
            by_fastavro(schema, one)  # raises Misfit for what must be marked


# What fastavro does not write


@pytest.mark.parametrize("blocks", [b"\x04\x02\x04\x00", b"\x03\x04\x02\x04\x00", b"\x02\x02\x02\x04\x00", b"\x01\x02\x02\x01\x02\x04\x00"])
@pytest.mark.parametrize("items", ["long", "int"])
def test_arrays_in_several_blocks_with_and_without_sizes(blocks: bytes, items: str) -> None:
    array, is_bad = decode_avro(pa.array([blocks] * 3, pa.binary()), node_of({"type": "array", "items": items}))
    assert not is_bad.any() and array.to_pylist() == [[1, 2]] * 3


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_long_arrays_of_everything(rows: int, is_damaged: bool) -> None:
    """In few values and in many; a damaged one is marked alone."""
    item = {
        "type": "record", "name": "I", "fields": [
            {"name": "s", "type": "string"}, {"name": "n", "type": ["null", "long"]}, {"name": "f", "type": "double"},
            {"name": "of", "type": {"type": "array", "items": "int"}}, {"name": "m", "type": {"type": "map", "values": "boolean"}},
            {"name": "x", "type": {"type": "fixed", "name": "X", "size": 2}}, {"name": "z", "type": "null"},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        ],
    }  # fmt: skip
    schema = {"type": "array", "items": item}
    made = {"s": "abc", "n": -(1 << 40), "f": 1.5, "of": [1, -300], "m": {"k": True}, "x": b"xy", "z": None, "e": "B"}
    value = [made, {**made, "n": None, "of": [], "s": "", "m": {}}] * 20
    good = encoded(schema, value)
    broken = good[:-9] if is_damaged else good
    array, is_bad = decode_avro(pa.array([good, broken, good] * rows, pa.binary()), node_of(schema))
    assert is_bad.tolist() == [False, is_damaged, False] * rows
    wanted = pa.array([[{**one, "m": list(one["m"].items())} for one in value]], node_of(schema).kind)[0]
    assert all(array[place] == wanted for place in np.flatnonzero(~is_bad).tolist())


def test_many_floats_are_one_step() -> None:
    schema = {"type": "array", "items": "double"}
    wanted = [[float(number) for number in range(size)] for size in (0, 50_000, 3)]
    array, is_bad = decode_avro(pa.array([encoded(schema, value) for value in wanted], pa.binary()), node_of(schema))
    assert not is_bad.any() and array.to_pylist() == wanted


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", b"\x80\x80\x80\x80\x20"),
        ("long", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
        ("long", b"\xff" * 11),
        ("string", b"\x02\xff"),
        ("string", b"\x01"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"),
        ({"type": "array", "items": "double"}, b"\x06" + bytes(16) + b"\0"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        (["null", "int"], b"\x04\x02"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x22" + bytes(17)),
    ],
)
def test_values_out_of_range(schema: Any, value: bytes) -> None:
    _, is_bad = decode_avro(pa.array([value], pa.binary()), node_of(schema))
    assert is_bad.tolist() == [True]


def test_milliseconds_become_microseconds() -> None:
    node = node_of({"type": "long", "logicalType": "timestamp-millis"})
    assert node.kind == pa.timestamp("us", "UTC")
    array, _ = decode_avro(pa.array([b"\x02", b"\x01"], pa.binary()), node)
    millisecond = datetime.timedelta(milliseconds=1)
    assert array.to_pylist() == [EPOCH + millisecond, EPOCH - millisecond]
    assert join(node.write(array)).to_pylist() == [b"\x02", b"\x01"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}, "record 'Tree' contains itself"),
        ({"type": "array", "items": "null"}, "have no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}}, "have no bytes"),
    ],
)
def test_schemas_without_a_type_in_arrow(schema: Any, message: str) -> None:
    with pytest.raises(SchemaUsageError, match=f"^schema: .*{message}"):
        node_of(schema)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ("int", None, "null is not allowed"),
        ({"type": "array", "items": "int"}, [1, None], "null is not allowed"),
        (["int", "string"], {"member0": None, "member1": None}, "exactly one member"),
        (["int", "string"], {"member0": 1, "member1": "x"}, "exactly one member"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "'C' is none of A, B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"x", "1 bytes instead of 2"),
        ({"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2}, decimal.Decimal(-129), "fit into 1 bytes"),
        ("null", 1, "only null is allowed"),
    ],
)
def test_values_that_cannot_be_written(schema: Any, value: Any, message: str) -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "of", "type": schema}]}
    node = node_of(record)
    kind = pa.int64() if schema == "null" else pa.decimal128(3) if isinstance(value, decimal.Decimal) else node.kind[0].type
    with pytest.raises(Misfit, match=f"^of: .*{message}"):
        node.write(pa.array([{"of": value}], pa.struct([("of", kind)])))
