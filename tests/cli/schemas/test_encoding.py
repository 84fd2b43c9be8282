"""`produce` by a schema: JSON becomes Avro and Protobuf, with a registry's header where there is one, and `consume` gives the JSON back."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ottla.cli.command import UsageError
from ottla.cli.schemas.json_schema import Schema
from ottla.schemas.avro_json import avro_value
from ottla.schemas.errors import Misfit
from ottla.schemas.formats import avro
from ottla.schemas.registry import HEADER, header
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.schemas.running_registry import Registry, running_registry

AVRO = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "item", "type": "string"},
        {"name": "amount", "type": ["null", "int"], "default": None},
        {"name": "raw", "type": "bytes", "default": ""},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "parent", "type": ["null", "Order"], "default": None},
        {"name": "pay", "type": [
            {"type": "record", "name": "Card", "fields": [{"name": "number", "type": "string"}]},
            {"type": "record", "name": "Cash", "fields": [{"name": "note", "type": "string"}]},
        ]},
    ],
}  # fmt: skip
ORDER = {
    "item": "\u00e4pfel", "amount": 5, "raw": "/w==", "code": "AAE=", "day": "2024-10-04", "at": "2024-10-04 12:00:00.250000+00:00",
    "price": "12.30", "state": "NEW", "tags": ["a", "b"], "counts": {"x": 1}, "parent": None, "pay": {"note": "thanks"},
}  # fmt: skip
PROTO = """
syntax = "proto3";
package shop;
message Refund { string reason = 1; message Line { int32 number = 1; } }
message Order { string item = 1; int32 unit_price = 2; message Line { int32 number = 1; } }
"""
JSON_SCHEMA = {"type": "object", "required": ["id"]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "key.avsc").write_text('"string"')
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "order.json").write_text(json.dumps(JSON_SCHEMA))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def produce(ottla: Ottla, files: Path, topic: str) -> Callable[..., Any]:
    def run(text: str, *options: str) -> Any:
        (files / "lines").write_text(text)
        return ottla("produce", topic, "-q", "-l", "lines", *options)

    return run


def read(ottla: Ottla, topic: str, *options: str) -> list[dict[str, Any]]:
    result = ottla("consume", topic, "-e", "-q", "-J", *options)
    assert result.code == 0, result
    return [json.loads(line) for line in result.out.splitlines()]


def test_avro_by_a_file_comes_back_as_it_was(ottla: Ottla, broker: Broker, topic: str, produce: Callable[..., Any]) -> None:
    nested = {**ORDER, "parent": {**ORDER, "pay": {"Card": {"number": "7"}}}}
    text = f'"k"\t{json.dumps(nested)}\n'
    assert produce(text, "-K", "\\t", "--schema", "order.avsc", "--key-schema", "key.avsc").code == 0
    (record,) = broker.records(topic)
    assert record.key == b"\x02k" and record.value is not None and record.value.startswith(b"\x0c\xc3\xa4pfel\x02\x0a\x02\xff")
    (found,) = read(ottla, topic, "--schema", "order.avsc", "--key-schema", "key.avsc")
    assert json.loads(found["key"]) == "k"
    assert json.loads(found["payload"]) == {**ORDER, "parent": {**ORDER, "pay": {"number": "7"}}}


def test_fields_with_defaults_may_be_left_out(ottla: Ottla, topic: str, produce: Callable[..., Any]) -> None:
    short = {name: value for name, value in ORDER.items() if name not in ("amount", "parent")}
    assert produce(json.dumps(short) + "\n", "--schema", "order.avsc").code == 0
    (found,) = read(ottla, topic, "--schema", "order.avsc")
    assert json.loads(found["payload"]) == {**ORDER, "amount": None}


@pytest.mark.parametrize(
    ("written", "stored"), [("2.50", 250), ("-3", -300), ('"7.1"', 710), ("12345678901234567.89", 1234567890123456789)]
)
def test_a_decimal_may_be_a_number_of_which_no_digit_is_lost(written: str, stored: int) -> None:
    schema = '{"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}'
    data = avro(schema, "price.avsc").encoder(None)(written.encode())
    assert int.from_bytes(data[1:], "big", signed=True) == stored


def test_floats_of_avro_take_numbers_as_they_are() -> None:
    assert avro('"double"', "d.avsc").encoder(None)(b"2.50") == struct.pack("<d", 2.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item": 5}, "value.item is not string"),
        ({"amount": "x"}, "value.amount is none of null, int"),
        ({"amount": 1 << 31}, "value.amount is none of null, int"),
        ({"raw": "?"}, "value.raw is not base64"),
        ({"code": "AA=="}, "value.code has 1 bytes instead of 2"),
        ({"day": "tomorrow"}, "value.day is not date: 'tomorrow'"),
        ({"price": 1.234}, "Scale"),
        ({"price": "much"}, "value.price is not decimal"),
        ({"state": "LOST"}, "value.state is none of NEW, PAID"),
        ({"tags": "a"}, "value.tags is not an array"),
        ({"tags": ["a", 1]}, "value.tags[1] is not string"),
        ({"counts": {"x": 1.5}}, "value.counts.x is not long"),
        ({"counts": []}, "value.counts is not an object"),
        ({"pay": {}}, "value.pay is none of"),
        ({"more": 1}, "value.more is not in the schema"),
    ],
)
def test_what_does_not_fit_avro_is_named(change: dict[str, Any], message: str) -> None:
    encode = avro(json.dumps(AVRO), "order.avsc").encoder(None)
    with pytest.raises(Misfit) as misfit:
        encode(json.dumps({**ORDER, **change}).encode())
    assert message in str(misfit.value)


def test_a_field_without_a_default_is_needed_and_an_object_too() -> None:
    named: dict[str, Any] = {}
    schema = fastavro.parse_schema(AVRO, named_schemas=named)
    with pytest.raises(ValueError, match="value has no 'item'"):
        avro_value(schema, named, {name: value for name, value in ORDER.items() if name != "item"})
    with pytest.raises(ValueError, match="value is not an object"):
        avro_value(schema, named, [])


def test_protobuf_by_a_file(ottla: Ottla, broker: Broker, topic: str, produce: Callable[..., Any]) -> None:
    assert produce('{"item": "apples", "unitPrice": 5}\n', "--schema", "order.proto", "--message", "Order").code == 0
    assert [record.value for record in broker.records(topic)] == [b"\x0a\x06apples\x10\x05"]
    (found,) = read(ottla, topic, "--schema", "order.proto", "--message", "Order")
    assert json.loads(found["payload"]) == {"item": "apples", "unit_price": 5}
    refused = produce('{"reason": "late"}\n{"why": "late"}\n', "--schema", "order.proto")
    assert refused.code == 1 and refused.err.startswith("error: line 2 does not fit the schema: ") and "why" in refused.err
    assert broker.records(topic)[-1].value == b"\x0a\x04late", "what stands before the misfit is sent"


def test_a_schema_is_registered_and_its_id_stands_before_the_value(
    ottla: Ottla, broker: Broker, topic: str, registry: Registry, produce: Callable[..., Any]
) -> None:
    options = ("--registry", registry.url.replace("http://", "http://me:p%40w@"), "--schema", "order.avsc", "--key-schema", "key.avsc")
    assert produce(f'"k"\t{json.dumps(ORDER)}\n', "-K", "\\t", *options).code == 0
    assert registry.subjects == {f"{topic}-key": [1], f"{topic}-value": [2]}
    assert json.loads(registry.schemas[2]["schema"]) == AVRO and registry.schemas[2]["schemaType"] == "AVRO"
    (record,) = broker.records(topic)
    assert record.key == HEADER.pack(0, 1) + b"\x02k" and record.value is not None and record.value.startswith(HEADER.pack(0, 2))
    (found,) = read(ottla, topic, "--registry", registry.url)
    assert (json.loads(found["key"]), json.loads(found["payload"])) == ("k", ORDER)


def test_the_newest_schema_of_the_topic_or_one_by_its_id(
    ottla: Ottla, broker: Broker, topic: str, registry: Registry, produce: Callable[..., Any]
) -> None:
    registry.schemas = {
        1: {"schema": '"string"'}, 3: {"schema": PROTO, "schemaType": "PROTOBUF"}, 300: {"schema": '"int"', "schemaType": "AVRO"},
    }  # fmt: skip
    registry.subjects = {f"{topic}-value": [1, 3]}
    assert produce('plain:{"reason": "late"}\n', "-K", ":", "--registry", registry.url).code == 0
    assert produce('{"item": "tea"}\n', "--registry", registry.url, "--message", "shop.Order").code == 0
    assert produce('{"number": 7}\n', "--registry", registry.url, "--message", "Order.Line").code == 0
    assert produce("7\n", "--registry", registry.url, "--schema-id", "300").code == 0
    assert [record.value for record in broker.records(topic)] == [
        HEADER.pack(0, 3) + b"\0\x0a\x04late",
        HEADER.pack(0, 3) + b"\x02\x02\x0a\x03tea",
        HEADER.pack(0, 3) + b"\x04\x02\x00\x08\x07",
        HEADER.pack(0, 300) + b"\x0e",
    ]
    found = read(ottla, topic, "--registry", registry.url)
    assert [json.loads(record["payload"]) for record in found] == [{"reason": "late"}, {"item": "tea"}, {"number": 7}, 7]
    assert found[0]["key"] == "plain"


def test_json_of_a_registry_is_checked(ottla: Ottla, broker: Broker, topic: str, registry: Registry, produce: Callable[..., Any]) -> None:
    assert produce('{"id": 1}\n', "--registry", registry.url, "--schema", "order.json").code == 0
    assert [record.value for record in broker.records(topic)] == [HEADER.pack(0, 1) + b'{"id": 1}']
    refused = produce("{}\n", "--registry", registry.url)
    assert (refused.code, "'id' is a required property" in refused.err) == (1, True)


def test_the_place_of_a_message_takes_more_than_one_byte() -> None:
    assert header(1, (64,)) == HEADER.pack(0, 1) + b"\x02\x80\x01"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--registry", "REGISTRY"), 1, "answers 404 Subject or schema not found"),
        (("--registry", "REGISTRY", "--schema-id", "9"), 1, "answers 404"),
        (("--registry", "http://127.0.0.1:1"), 3, "no schema registry at http://127.0.0.1:1"),
        (("--schema-id", "9"), 2, "--schema-id goes with --registry"),
        (("--message", "Order"), 2, "--message goes with --schema FILE or --registry URL"),
        (("--message", "Order", "--schema", "order.json"), 2, "--message is for Protobuf"),
        (("--registry", "REGISTRY", "--schema", "order.avsc", "--schema-id", "9"), 2, "choose one"),
        (("--registry", "REGISTRY", "--schema", "order.desc"), 2, "takes the text of a schema"),
        (("--schema", "no-such-file.avsc"), 2, "cannot read no-such-file.avsc"),
        (("--schema", "order.avsc", "--generate", "5"), 2, "schemas do not go with --generate"),
    ],
)
def test_what_is_refused_before_anything_is_written(
    broker: Broker, topic: str, registry: Registry, produce: Callable[..., Any], options: tuple[str, ...], code: int, message: str
) -> None:
    result = produce("{}\n", *[registry.url if word == "REGISTRY" else word for word in options])
    assert result.code == code and result.err.count("\n") == 1 and message in result.err and broker.records(topic) == []


# `produce --schema`: what fits, what does not and where, and schemas that are refused because of unknown keywords


ORDER_JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "lines"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "state": {"enum": ["new", "paid"]},
        "code": {"type": ["string", "null"], "pattern": "^[A-Z]+$", "maxLength": 4},
        "lines": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {"price": {"exclusiveMinimum": 0}}}},
    },
}


@pytest.mark.parametrize(
    ("value", "misfit"),
    [
        ({"id": 1, "lines": [{}]}, ""),
        ({"id": 1.0, "lines": [{"price": 0.5}], "state": "paid", "code": None}, ""),
        ({"id": 1}, "value has no 'lines'"),
        ({"id": True, "lines": [{}]}, "value.id is not integer"),
        ({"id": 0, "lines": [{}]}, "value.id is not at least 1"),
        ({"id": 1, "lines": []}, "value.lines is not as long as 1"),
        ({"id": 1, "lines": [{}, {"price": 0}]}, "value.lines[1].price is not above 0"),
        ({"id": 1, "lines": [{}], "state": "lost"}, 'value.state is not one of ["new", "paid"]'),
        ({"id": 1, "lines": [{}], "code": "ABCDE"}, "value.code is not as short as 4"),
        ({"id": 1, "lines": [{}], "code": "a"}, 'value.code is not of the form "^[A-Z]+$"'),
        ({"id": 1, "lines": [{}], "more": 1}, "value.more is not allowed"),
        ([], "value is not object"),
    ],
)
def test_values(value: Any, misfit: str) -> None:
    schema = Schema(json.dumps(ORDER_JSON_SCHEMA), "order.json")
    data = json.dumps(value).encode()
    if not misfit:
        schema.check(data)
        return
    with pytest.raises(Misfit) as refused:
        schema.check(data)
    assert str(refused.value) == misfit


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "a schema is an object"),
        ('{"oneOf": []}', "the keyword 'oneOf' is not offered"),
        ('{"properties": {"a": {"$ref": "#"}}}', "s.json at /a: the keyword '$ref' is not offered"),
        ('{"type": "text"}', "no type 'text'"),
        ('{"pattern": "("}', "is not a regular expression"),
    ],
)
def test_schemas_that_are_not_understood(schema: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Schema(schema, "s.json")
    assert message in str(refused.value)


def test_produce_stops_at_the_first_misfit(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema, lines = tmp_path / "order.json", tmp_path / "lines"
    schema.write_text(json.dumps(ORDER_JSON_SCHEMA))
    lines.write_text('{"id": 1, "lines": [{}]}\n{"id": 0, "lines": [{}]}\n')
    result = ottla("produce", topic, "--file", lines, "--schema", schema)
    assert result.code == 1 and result.err == "error: line 2 does not fit the schema: value.id is not at least 1\n"
    assert [record.value for record in broker.records(topic)] == [b'{"id": 1, "lines": [{}]}']
    lines.write_text("k:no json\n")
    assert (
        "line 1 does not fit the schema: it is not JSON: 'no json'"
        in ottla("produce", topic, "-l", lines, "-K", ":", "--schema", schema).err
    )
    lines.write_text("k:\n")
    assert ottla("produce", topic, "-l", lines, "-K", ":", "-Z", "--schema", schema).code == 0, "a tombstone has no schema"
    assert broker.records(topic)[-1].value is None


def test_other_keywords_are_checked_where_jsonschema_is(ottla: Ottla, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, lines = tmp_path / "order.json", tmp_path / "lines"
    schema.write_text('{"multipleOf": 5}')
    lines.write_text("10\n7\n")
    produce = ("produce", topic, "-l", lines, "--schema", schema)
    assert ottla(*produce).err == "error: line 2 does not fit the schema: $: 7 is not a multiple of 5\n"
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    result = ottla(*produce)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "the keyword 'multipleOf' is not offered" in result.err and "pip install jsonschema" in result.err
