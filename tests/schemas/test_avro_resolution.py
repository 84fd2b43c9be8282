"""A column of one Avro schema as a column of another, as fastavro resolves one value."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla.schemas.avro_columns import avro_node
from ottla.schemas.avro_resolution import resolve
from ottla.schemas.errors import Misfit
from ottla.schemas.formats import avro
from ottla.schemas.values import decode_avro


def record(*fields: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]}


INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4}
WIDER = {"type": "record", "name": "I", "fields": [{"name": "y", "type": "string", "default": "-"}, {"name": "x", "type": "double"}]}


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        (record(("a", "int"), ("b", "string")), record(("b", "string")), {"a": 1, "b": "x"}),
        (record(("a", "int")), record(("a", "long"), ("b", ["null", "int"], None)), {"a": 1}),
        (record(("a", ["null", INNER])), record(("a", ["null", WIDER])), {"a": None}),
        (record(("a", ["null", INNER])), record(("a", ["null", WIDER])), {"a": {"x": 5}}),
        (record(("a", {"type": "array", "items": INNER})), record(("a", {"type": "array", "items": WIDER})), {"a": [{"x": 1}, {"x": 2}]}),
        (record(("a", {"type": "map", "values": "int"})), record(("a", {"type": "map", "values": "float"})), {"a": {"k": 3}}),
        (record(("a", "string"), ("b", "bytes")), record(("a", "bytes"), ("b", "string")), {"a": "x", "b": b"y"}),
        (record(("a", "int")), record(("a", ["null", "int"])), {"a": 3}),
        (record(("a", "null")), record(("a", ["null", "int"])), {"a": None}),
    ],
)
def test_columns_are_resolved_as_values_are(writer: Any, reader: Any, value: Any) -> None:
    first, second = (fastavro.parse_schema(json.loads(json.dumps(one))) for one in (writer, reader))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, first, value)
    stream.seek(0)
    wanted = fastavro.schemaless_reader(stream, first, second)
    nodes = [avro_node(*avro(json.dumps(one), "schema").definition) for one in (writer, reader)]
    array, _ = decode_avro(pa.array([b"", stream.getvalue(), stream.getvalue()], pa.binary()).slice(1), nodes[0])
    found = resolve(array, *nodes)
    found.validate(full=True)
    assert found.equals(pa.array([wanted, wanted], nodes[1].kind))


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        (record(("a", "string")), record(("a", "int")), "value.a is string, and the schema of the column has int32"),
        (record(("a", "long")), record(("a", "int")), "value.a is int64"),
        (record(("a", "int")), record(("b", "int")), "value has no 'b', which has no default"),
        (record(("a", "int")), record(("a", "int"), ("b", DECIMAL, "x")), "the default of value.b is not decimal128"),
        (record(("a", ["int", "string"])), record(("a", "int")), "value.a is struct"),
    ],
)
def test_schemas_that_do_not_fit_each_other(writer: Any, reader: Any, message: str) -> None:
    nodes = [avro_node(*avro(json.dumps(one), "schema").definition) for one in (writer, reader)]
    with pytest.raises(Misfit, match=f"^{message}"):
        resolve(pa.array([], nodes[0].kind), *nodes)


def test_a_default_of_bytes_has_a_character_for_each_byte() -> None:
    nodes = [avro_node(*avro(json.dumps(one), "schema").definition) for one in (record(), record(("b", "bytes", "\u00e9")))]
    assert resolve(pa.array([{}, None], nodes[0].kind), *nodes).to_pylist() == [{"b": b"\xe9"}, None]
