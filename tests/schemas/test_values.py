"""Columns of values by a schema from text, a file or a registry; values of other schemas, and values that do not fit."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla.schemas import values as module
from ottla.schemas.errors import Misfit, RegistryAwayError, RegistryError, SchemaUsageError
from ottla.schemas.registry import HEADER
from ottla.schemas.value_options import ValueOptions, check_options
from ottla.schemas.values import (
    ValueDecoder,
    ValueEncoder,
    ValueSchema,
    fitted,
    resolve_values,
    resolve_written,
)
from tests.schemas.running_registry import Registry, running_registry

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, {"name": "amount", "type": "int"}]}
SECOND = {
    "type": "record", "name": "Order", "fields": [
        {"name": "amount", "type": "long"}, {"name": "what", "aliases": ["item"], "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]},
    ],
}  # fmt: skip
PROTO = """
syntax = "proto3";
package shop;
message Refund { string why = 1; }
message Order { string item = 1; message Line { int32 number = 1; } }
"""
JSON_SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}}
TEA = {"item": "tea", "amount": 12}


def encoded(schema: Any, value: Any, number: int | None = None) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return (b"" if number is None else HEADER.pack(0, number)) + stream.getvalue()


def options(kind: str, **given: Any) -> ValueOptions:
    return ValueOptions(format=kind, **given)


def decoded(chosen: ValueOptions, values: list[bytes | None], topic: str = "orders") -> tuple[list[Any], list[bool], ValueDecoder]:
    decoder = ValueDecoder(resolve_values(chosen, [topic]))
    array, is_bad = decoder.decode(pa.array(values, pa.binary()))
    assert array.type == decoder.kind
    return array.to_pylist(), is_bad.tolist(), decoder


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        running.schemas = {
            1: {"schema": json.dumps(FIRST)}, 2: {"schema": json.dumps(SECOND), "schemaType": "AVRO"},
            3: {"schema": PROTO, "schemaType": "PROTOBUF"}, 4: {"schema": json.dumps(JSON_SCHEMA), "schemaType": "JSON"},
            5: {"schema": '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}'},
        }  # fmt: skip
        running.subjects = {"orders-value": [1, 2], "proto-value": [3], "json-value": [4]}
        yield running


# One schema


def test_null_stays_null_and_what_does_not_fit_is_null_and_marked() -> None:
    data = encoded(FIRST, TEA)
    found, is_bad, decoder = decoded(options("avro", schema=json.dumps(FIRST)), [None, data, data[:-1], data, None])
    assert found == [None, TEA, None, TEA, None] and is_bad == [False, False, True, False, False]
    assert decoder.misfit(data + b"x") == "1 bytes are left over"
    assert decoder.misfit(b"\x02t\x80\x80\x80\x80\x20") == "a number is out of range"
    assert decoded(options("avro", schema=json.dumps(FIRST)), [])[0] == []


@pytest.mark.parametrize(
    ("name", "text", "kind", "value", "wanted"),
    [
        ("order.avsc", json.dumps(FIRST), "avro", encoded(FIRST, TEA), TEA),
        ("order.proto", PROTO, "protobuf", b"\x0a\x04late", {"why": "late"}),
        ("order.json", json.dumps(JSON_SCHEMA), "json", b'{"item": "tea", "more": 1}', {"item": "tea"}),
    ],
)
def test_a_schema_is_text_or_a_file(tmp_path: Path, name: str, text: str, kind: str, value: bytes, wanted: Any) -> None:
    path = tmp_path / name
    path.write_text(text)
    for given in (text, str(path)):
        assert decoded(options(kind, schema=given), [value])[0] == [wanted]


def test_the_resolved_schema_needs_no_file_any_more(tmp_path: Path) -> None:
    path = tmp_path / "order.proto"
    path.write_text(PROTO)
    resolved = resolve_values(options("protobuf", schema=str(path), message="Order.Line"), [])
    path.unlink()
    assert ValueDecoder(resolved).decode(pa.array([b"\x08\x07"], pa.binary()))[0].to_pylist() == [{"number": 7}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "xml"}, "valueFormat: 'xml' is none of json, avro, protobuf"),
        ({"format": "avro", "schema": "{}", "message": "x"}, "message: only a Protobuf schema has messages"),
        ({"format": "avro"}, "schema: missing; valueFormat=avro needs a schema"),
    ],
)
def test_options_that_contradict_each_other(given: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaUsageError) as refused:
        check_options(ValueOptions(**given), {"format": "valueFormat", "message": "message"}, needs_schema=True)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("kind", "schema", "message"),
    [
        ("avro", "no-such-file.avsc", "schema: cannot read no-such-file.avsc: no such file"),
        ("avro", '{"type": "colour"}', "schema: the schema is not an Avro schema"),
        ("json", "{", "schema: the schema is not a JSON Schema"),
        ("json", '{"type": "object"}', "schema: no column can hold"),
        ("protobuf", "message {", "schema: the schema is not a Protobuf schema"),
        ("protobuf", 'syntax = "proto3"; message X { X x = 1; }', "schema: message 'X' contains itself"),
    ],
)
def test_schemas_that_do_not_work_are_one_line(kind: str, schema: str, message: str) -> None:
    with pytest.raises(SchemaUsageError) as refused:
        ValueDecoder(resolve_values(options(kind, schema=schema), []))
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)


# A registry: each value begins with the id of its schema


def test_values_of_other_schemas_have_the_type_of_the_newest(registry: Registry) -> None:
    values = [
        encoded(FIRST, TEA, 1), encoded(SECOND, {"amount": 5, "what": None, "tags": ["x"]}, 2), None, encoded(FIRST, TEA),
        HEADER.pack(0, 9), HEADER.pack(0, 3), encoded(FIRST, TEA, 1)[:-1], b"\0\0", encoded(FIRST, TEA, 1), HEADER.pack(0, 5) + b"\x02t",
    ]  # fmt: skip
    found, is_bad, decoder = decoded(options("avro", registry=registry.url), values)
    tea = {"amount": 12, "what": "tea", "tags": ["new"]}
    assert found == [tea, {"amount": 5, "what": None, "tags": ["x"]}, None, None, None, None, None, None, tea, None]
    assert is_bad == [False, False, False, True, True, True, True, True, False, True]
    reasons = [decoder.misfit(values[place] or b"") for place in (3, 4, 5, 6, 7, 9)]
    assert reasons[0] == reasons[4] == "it has no header with the id of a schema"
    assert "answers 404 Subject or schema not found" in reasons[1]
    assert reasons[2] == "id 3 has a schema of type PROTOBUF, not AVRO"
    assert reasons[5] == "value has no 'amount', which has no default"


def test_a_given_schema_is_the_type_of_the_column(registry: Registry) -> None:
    chosen = options("avro", registry=registry.url, schema=json.dumps(FIRST))
    second = encoded(SECOND, {"amount": 5, "what": "x", "tags": []}, 2)
    assert decoded(chosen, [encoded(FIRST, TEA, 1), second], "other")[:2] == ([TEA, None], [False, True])


def test_protobuf_of_a_registry_names_its_message(registry: Registry) -> None:
    start = HEADER.pack(0, 3)
    values = [start + b"\0\x0a\x04late", start + b"\x02\0\x0a\x01x", start + b"\x02\x02\x0a\x03tea", start, start + b"\x02\x0a", b"x"]
    found, is_bad, decoder = decoded(options("protobuf", registry=registry.url), values, "proto")
    assert found == [{"why": "late"}, {"why": "x"}, None, None, None, None] and is_bad == [False, False, True, True, True, True]
    assert decoder.misfit(values[2]) == "it is a message shop.Order, not shop.Refund"
    assert decoder.misfit(values[3]) == "its header is cut short"
    line = options("protobuf", registry=registry.url, message="Order.Line")
    assert decoded(line, [start + b"\x04\x02\0\x08\x07"], "proto")[0] == [{"number": 7}]


def test_json_of_a_registry(registry: Registry) -> None:
    start = HEADER.pack(0, 4)
    found, is_bad, _ = decoded(options("json", registry=registry.url), [start + b'{"item": "tea"}', start + b"{", b"{}"], "json")
    assert found == [{"item": "tea"}, None, None] and is_bad == [False, True, True]


def test_a_registry_that_is_away_is_no_misfit(registry: Registry) -> None:
    resolved = resolve_values(options("avro", registry="http://127.0.0.1:1", schema=json.dumps(FIRST)), ["orders"])
    with pytest.raises(RegistryAwayError, match=r"^registry: no schema registry at http://127\.0\.0\.1:1/schemas/ids/1: "):
        ValueDecoder(resolved).decode(pa.array([encoded(FIRST, TEA, 1)], pa.binary()))
    with pytest.raises(RegistryAwayError):
        resolve_values(options("avro", registry="http://127.0.0.1:1"), ["orders"])
    with pytest.raises(RegistryError, match=r"^registry: .* answers 404 Subject"):
        resolve_values(options("avro", registry=registry.url), ["unknown"])
    with pytest.raises(RegistryError, match="answers 401"):
        resolve_values(options("avro", registry=registry.url.replace("http://", "http://x:y@")), ["orders"])
    with pytest.raises(SchemaUsageError, match=r"^registry: subject 'proto-value' has a schema of type PROTOBUF, not AVRO$"):
        resolve_values(options("avro", registry=registry.url), ["proto"])
    with pytest.raises(SchemaUsageError, match=r"^registry: a subject is for one topic"):
        resolve_values(options("avro", registry=registry.url), ["a", "b"])


def test_unknown_ids_are_remembered_up_to_a_bound(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNKNOWN_MAX", 2)
    _, is_bad, decoder = decoded(options("avro", registry=registry.url), [HEADER.pack(0, number) for number in range(10, 15)])
    assert all(is_bad) and len(decoder._unknown) == 2


# Writing


def written(chosen: ValueOptions, rows: Any, topic: str = "orders") -> list[bytes | None]:
    found: list[bytes | None] = ValueEncoder(resolve_written(chosen, [topic], rows.type)).encode(rows).to_pylist()
    return found


def test_columns_are_converted_if_nothing_is_lost() -> None:
    rows = pa.array([{"amount": 12, "item": "tea"}, None], pa.struct([("amount", pa.int64()), ("item", pa.large_string())]))
    assert written(options("avro", schema=json.dumps(FIRST)), rows) == [encoded(FIRST, TEA), None]
    for wrong, message in (
        (pa.array([{"amount": 1 << 40, "item": "x"}]), "value.amount is int64, and the schema has int32: "),
        (pa.array([{"amount": None, "item": "x"}], rows.type), "amount: null is not allowed"),
    ):
        with pytest.raises(Misfit, match=message):
            written(options("avro", schema=json.dumps(FIRST)), wrong)


@pytest.mark.parametrize(
    ("kind", "wanted", "message"),
    [
        (pa.struct([("amount", pa.string())]), pa.struct([("amount", pa.int32())]), "value.amount is string, and the schema has int32"),
        (pa.struct([("x", pa.int32())]), pa.struct([("amount", pa.int32())]), "value.x is not in the schema, which has amount"),
        (pa.list_(pa.bool_()), pa.list_(pa.int32()), r"value\[\] is bool, and the schema has int32"),
        (pa.map_(pa.string(), pa.bool_()), pa.map_(pa.string(), pa.string()), r"value.\* is bool, and the schema has string"),
        (pa.string(), pa.struct([("amount", pa.int32())]), "value is string, and the schema has struct<amount: int32>"),
        (pa.timestamp("us"), pa.date32(), r"value is timestamp\[us\], and the schema has date32"),
    ],
)
def test_types_that_do_not_fit_are_found_without_a_row(kind: Any, wanted: Any, message: str) -> None:
    with pytest.raises(Misfit, match=f"^{message}"):
        fitted(pa.array([], kind), wanted)


def test_types_that_fit() -> None:
    for rows, wanted in (
        (pa.array([[1, None], None, []], pa.large_list(pa.int64())), pa.list_(pa.int32())),
        (pa.array([None, [("a", 1)], [("b", None)]], pa.map_(pa.string(), pa.int32())), pa.map_(pa.string(), pa.int64())),
        (pa.array(["x", None]).dictionary_encode(), pa.binary()),
        (pa.nulls(2), pa.struct([("a", pa.int32())])),
        (pa.array([{"b": 1}, None]), pa.struct([("a", pa.string()), ("b", pa.float64())])),
    ):
        found = fitted(rows.slice(1), wanted)
        found.validate(full=True)
        assert found.type == wanted and found.null_count == rows.slice(1).null_count


def test_the_header_of_the_newest_schema_or_of_the_given_one(registry: Registry) -> None:
    rows = pa.array([{"amount": 5, "what": "x", "tags": []}, None])
    assert written(options("avro", registry=registry.url), rows) == [encoded(SECOND, rows[0].as_py(), 2), None]
    assert written(options("avro", registry=registry.url, schema=json.dumps(FIRST)), pa.array([TEA]), "new") == [encoded(FIRST, TEA, 6)]
    assert registry.subjects["new-value"] == [6] and json.loads(registry.schemas[6]["schema"]) == FIRST
    line = options("protobuf", registry=registry.url, message="Order.Line")
    assert written(line, pa.array([{"number": 7}]), "proto") == [HEADER.pack(0, 3) + b"\x04\x02\0\x08\x07"]
    assert written(options("json", registry=registry.url), pa.array([{"item": "x"}]), "json") == [HEADER.pack(0, 4) + b'{"item":"x"}']


def test_a_schema_that_the_rows_do_not_fit_is_not_stored(registry: Registry) -> None:
    with pytest.raises(Misfit):
        written(options("avro", registry=registry.url, schema=json.dumps(FIRST)), pa.array([{"amount": "x"}]), "new")
    assert "new-value" not in registry.subjects


def test_json_without_a_schema() -> None:
    encoder = ValueEncoder(ValueSchema(options=options("json")))
    assert encoder.encode(pa.array([{"a": 1}, None])).to_pylist() == [b'{"a":1}', None]
    with pytest.raises(Misfit, match="JSON has no form for binary"):
        encoder.check(pa.binary())
