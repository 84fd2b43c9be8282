"""Records in Avro, Protobuf and JSON, with schemas from files and from a registry, printed as JSON."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ottla.schemas.errors import Misfit, SchemaCompilerError, SchemaUsageError
from ottla.schemas.formats import avro, file_format, json_schema, protobuf_descriptors, protobuf_source
from ottla.schemas.registry import HEADER
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.schemas.running_registry import running_registry

AVRO = {
    "type": "record", "name": "Order", "fields": [
        {"name": "item", "type": "string"},
        {"name": "amount", "type": ["null", "int"]},
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}  # fmt: skip
ORDER = {"item": "äpfel", "amount": 5, "raw": b"\xff", "day": 20_000}
AS_JSON = {"item": "äpfel", "amount": 5, "raw": "/w==", "day": "2024-10-04"}
JSON_SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer", "multipleOf": 5}}, "$defs": {}, "required": ["amount"]}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order { string item = 1; int32 unit_price = 2; google.protobuf.Timestamp at = 3; message Line { int32 number = 1; } }
message Refund { string reason = 1; }
"""
PROTO_ORDER = b"\x0a\x06apples\x10\x05\x1a\x02\x08\x01"
PROTO_AS_JSON = {"item": "apples", "unit_price": 5, "at": "1970-01-01T00:00:01Z"}


def encoded(value: dict[str, Any] = ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """A registry with a schema of each type: 1 Avro, 2 JSON, 3 Protobuf, 4 one that refers to another."""
    schemas: dict[int, dict[str, Any]] = {
        1: {"schema": json.dumps(AVRO)},
        2: {"schema": json.dumps(JSON_SCHEMA), "schemaType": "JSON"},
        3: {"schema": PROTO, "schemaType": "PROTOBUF"},
        4: {"schema": json.dumps(AVRO), "references": [{"name": "Other"}]},
        5: {"schema": "x", "schemaType": "THRIFT"},
    }

    with running_registry() as running:
        running.schemas.update(schemas)
        yield running.url


def read(ottla: Ottla, topic: str, *options: object) -> list[dict[str, Any]]:
    result = ottla("consume", topic, "-e", "-q", "-J", *options)
    assert result.code == 0, result
    return [json.loads(line) for line in result.out.splitlines()]


def test_avro_from_a_file(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    broker.add_record(topic, encoded(), key=encoded())
    broker.add_record(topic, None)
    first, tombstone = read(ottla, topic, "--schema", schema, "--key-schema", schema)
    assert json.loads(first["payload"]) == json.loads(first["key"]) == AS_JSON
    assert (tombstone["payload"], tombstone["key"]) == (None, None)
    assert [row["offset"] for row in read(ottla, topic, "--schema", schema, "--where", "value.amount == 5")] == [0]
    out = ottla("consume", topic, "-e", "-q", "--schema", schema, "-o", "csv", "--columns", "value.item,value.amount").out
    assert out == "value.item,value.amount\näpfel,5\n,\n"


def test_protobuf_from_a_file(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema, compiled = tmp_path / "order.proto", tmp_path / "order.desc"
    schema.write_text(PROTO)
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{tmp_path}",
        "--include_imports",
        f"--descriptor_set_out={compiled}",
        str(schema),
    ]
    subprocess.run(command, check=True)
    broker.add_record(topic, PROTO_ORDER)
    for path in (schema, compiled):
        (record,) = read(ottla, topic, "--schema", path)
        assert json.loads(record["payload"]) == PROTO_AS_JSON
        (other,) = read(ottla, topic, "--schema", path, "--message", "Refund")
        assert json.loads(other["payload"])["reason"] == "apples"
    unknown = ottla("consume", topic, "-e", "--schema", schema, "--message", "Bill")
    assert (unknown.code, "no message 'Bill'; there are Order, Refund" in unknown.err) == (2, True)


def test_the_message_is_one_of_the_values(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema, of_keys = tmp_path / "order.proto", tmp_path / "key.avsc"
    schema.write_text(PROTO)
    of_keys.write_text(json.dumps(AVRO))
    broker.add_record(topic, PROTO_ORDER, key=encoded())
    (record,) = read(ottla, topic, "--schema", schema, "--message", "Refund", "--key-schema", of_keys)
    assert (json.loads(record["payload"])["reason"], json.loads(record["key"])) == ("apples", AS_JSON)
    for command in ("consume", "produce"):
        refused = ottla(command, topic, "--message", "x", "--key-schema", of_keys)
        assert refused.code == 2 and "--schema FILE" in refused.err


def test_json_is_checked(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema = tmp_path / "order.json"
    schema.write_text(json.dumps(JSON_SCHEMA))
    broker.add_record(topic, '{"amount": 5}')
    broker.add_record(topic, '{"amount": 7}')
    result = ottla("consume", topic, "-e", "-q", "--schema", schema)
    assert (result.code, result.out) == (1, '{"amount": 5}\n')
    assert f"{topic}-0 offset 1 does not fit the schema: $.amount: 7 is not a multiple of 5" in result.err


def test_what_does_not_fit_can_be_skipped(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    """By the option of Kafka's console consumer."""
    schema = tmp_path / "order.json"
    schema.write_text(json.dumps(JSON_SCHEMA))
    for value in ('{"amount": 7}', '{"amount": 5}', "no JSON", '{"amount": 10}'):
        broker.add_record(topic, value)
    result = ottla("consume", topic, "-e", "--schema", schema, "--skip-message-on-error")
    assert (result.code, result.out) == (0, '{"amount": 5}\n{"amount": 10}\n')
    skipped = result.err.splitlines()
    assert [line.split(":")[0] for line in skipped] == ["skipped", "skipped", "Processed a total of 2 messages"]
    assert f"{topic}-0 offset 2 does not fit the schema" in skipped[1]


def test_a_registry(ottla: Ottla, broker: Broker, topic: str, registry: str) -> None:
    broker.add_record(topic, HEADER.pack(0, 1) + encoded(), key="plain")
    broker.add_record(topic, HEADER.pack(0, 2) + b'{"amount": 10}', key=HEADER.pack(0, 1) + encoded())
    broker.add_record(topic, HEADER.pack(0, 3) + b"\0" + PROTO_ORDER)
    broker.add_record(topic, HEADER.pack(0, 3) + b"\x02\x02\x0a\x03why")
    broker.add_record(topic, HEADER.pack(0, 3) + b"\x04\0\0\x08\x07")
    found = read(ottla, topic, "--registry", registry.replace("http://", "http://me:p%40w@"))
    assert [json.loads(record["payload"]) for record in found] == [
        AS_JSON, {"amount": 10}, PROTO_AS_JSON, {"reason": "why"}, {"number": 7},
    ]  # fmt: skip
    assert found[0]["key"] == "plain"
    assert json.loads(found[1]["key"]) == AS_JSON


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"text", "has no header with the id of a schema"),
        (HEADER.pack(0, 4) + b"x", "refers to others"),
        (HEADER.pack(0, 5) + b"x", "of type THRIFT"),
        (HEADER.pack(0, 9) + b"x", "answers 404"),
        (HEADER.pack(0, 1) + b"\x0c", "does not fit the schema"),
        (HEADER.pack(0, 3) + b"\x02\x20x", "no message at [16]"),
        (HEADER.pack(0, 3) + b"\xff", "header is cut short"),
    ],
)
def test_what_a_registry_cannot_decode(ottla: Ottla, broker: Broker, topic: str, registry: str, value: bytes, message: str) -> None:
    broker.add_record(topic, value)
    result = ottla("consume", topic, "-e", "--registry", registry)
    assert (result.code, message in result.err, "Traceback" in result.err) == (1, True, False), result


def test_a_registry_that_is_not_there(ottla: Ottla, broker: Broker, topic: str) -> None:
    broker.add_record(topic, HEADER.pack(0, 1) + encoded())
    result = ottla("consume", topic, "-e", "--registry", "http://127.0.0.1:1")
    assert (result.code, "no schema registry at http://127.0.0.1:1" in result.err) == (3, True)
    assert "connection refused" in result.err and "Errno" not in result.err


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://", "http://127.0.0.1:many", "http://127.0.0.1:70000", "http://a b"])
def test_an_address_that_no_registry_has(offline: Ottla, url: str) -> None:
    """The address is named as it was given, before anything is connected to."""
    for command in ("consume", "produce"):
        result = offline(command, "orders", "--registry", url, "-b", "127.0.0.1:1")
        assert (result.code, result.err) == (2, f"error: --registry {url!r} is not http://HOST:PORT or https://HOST:PORT\n")


def test_a_broker_is_no_registry(ottla: Ottla, broker: Broker, topic: str) -> None:
    broker.add_record(topic, HEADER.pack(0, 1) + encoded())
    result = ottla("consume", topic, "-e", "-q", "--registry", f"http://{broker.bootstrap_server}")
    assert (result.code, result.err.count("\n")) == (3, 1)
    assert result.err.startswith(f"error: no schema registry at http://{broker.bootstrap_server}/schemas/ids/1: ")


def test_a_header_before_a_schema_of_a_file(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    broker.add_record(topic, HEADER.pack(0, 77) + encoded())
    (record,) = read(ottla, topic, "--schema", schema, "--framed")
    assert json.loads(record["payload"]) == AS_JSON
    assert ottla("consume", topic, "-e", "--schema", schema).code == 1


def test_a_header_with_the_place_of_a_message_before_a_schema_of_a_file(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema = tmp_path / "order.proto"
    schema.write_text(PROTO)
    for place in (b"\0", b"\2\0"):
        broker.add_record(topic, HEADER.pack(0, 77) + place + PROTO_ORDER)
    assert [json.loads(record["payload"]) for record in read(ottla, topic, "--schema", schema, "--framed")] == [PROTO_AS_JSON] * 2


@pytest.mark.parametrize(
    "options",
    [
        ("--framed",),
        ("--message", "x"),
        ("--registry", "http://x", "--schema", "y"),
        ("--schema", "no-such-file"),
        ("--schema", "x.avsc", "--share-group", "g"),
    ],
)
def test_what_does_not_go_together(ottla: Ottla, topic: str, options: tuple[str, ...]) -> None:
    assert ottla("consume", topic, "-e", *options).code == 2


@pytest.mark.parametrize("data", [b"", encoded()[:-1], encoded() + b"x", b"\x7f" * 20])
def test_avro_that_does_not_fit(data: bytes) -> None:
    with pytest.raises(Misfit):
        avro(json.dumps(AVRO), "order.avsc").decoder()(data)


def test_a_schema_that_takes_too_long_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.schemas.formats.COMPILE_SECONDS_MAX", 0.0)
    with pytest.raises(SchemaCompilerError, match="order did not compile within 0 s"):
        protobuf_source(PROTO, "order")


def test_schemas_that_are_none(tmp_path: Path) -> None:
    for make, text in (
        (avro, "{"),
        (avro, '{"type": "colour"}'),
        (json_schema, '{"type": 5}'),
        (json_schema, "["),
        (protobuf_source, "message {"),
    ):
        with pytest.raises(SchemaUsageError):
            make(text, "schema")
    with pytest.raises(SchemaUsageError, match=r"is not a Protobuf schema: \S+:1:9: "):
        protobuf_source("message {", "schema")
    for data in (b"", b"\xff\xff"):
        with pytest.raises(SchemaUsageError):
            protobuf_descriptors(data, "schema.desc")
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(AVRO))
    with pytest.raises(SchemaUsageError, match="message: is for Protobuf"):
        file_format(str(path)).decoder("Order")


@pytest.mark.parametrize("name", ["fastavro", "jsonschema", "grpc_tools"])
def test_without_a_library(ottla: Ottla, topic: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / {"fastavro": "x.avsc", "jsonschema": "x.json", "grpc_tools": "x.proto"}[name]
    path.write_text("{}")
    monkeypatch.setitem(sys.modules, name, None)
    result = ottla("consume", topic, "-e", "--schema", path)
    package = name.replace("grpc_tools", "grpcio-tools")
    assert (result.code, f"{name} cannot be imported; install it: pip install {package}\n" in result.err) == (1, True)
