"""Values in Avro, Protobuf and JSON as typed columns of a frame, written by `ottla.write_frame`, by a schema and by a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest

import ottla
from ottla.cli.main import main
from ottla.client import Client
from ottla.frames.errors import FrameError, FrameUsageError, MissingPackageError
from ottla.testing.broker import Broker
from tests.schemas.running_registry import Registry, running_registry

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, {"name": "amount", "type": "int"}]})
PROTO = 'syntax = "proto3"; message Order { string item = 1; int32 amount = 2; }'
JSON_SCHEMA = '{"type": "object", "properties": {"item": {"type": "string"}, "amount": {"type": "integer"}}}'
SCHEMAS = {"avro": AVRO, "protobuf": PROTO, "json": JSON_SCHEMA}
ORDERS = {"item": ["tea", "rice"], "amount": [12, 30]}


@pytest.fixture
def write(broker: Broker) -> Any:
    return partial(ottla.write_frame, bootstrap=broker.bootstrap_server)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


@pytest.mark.parametrize("has_registry", [False, True])
@pytest.mark.parametrize("value_format", SCHEMAS)
def test_rows_come_back_with_their_types(
    frame: Any, write: Any, topic: str, registry: Registry, value_format: str, has_registry: bool
) -> None:
    form = {"value_format": value_format, "schema": SCHEMAS[value_format], "registry": registry.url if has_registry else None}
    assert write(polars.DataFrame(ORDERS), topic, key="item", **form) == 2
    if has_registry:
        form["schema"] = None
    found = frame(topic, key_format="text", columns=["key", "value"], **form)
    assert pa.types.is_struct(found.schema.field("value").type)
    rows = sorted(found.to_arrow().to_pylist(), key=str)
    assert rows == [{"key": item, "value": {"item": item, "amount": amount}} for item, amount in (("rice", 30), ("tea", 12))]
    assert found.to_duckdb().aggregate("sum(value.amount)").fetchall() == [(42,)]
    assert found.select(["key"]).to_arrow().num_rows == 2


def test_a_column_of_values_is_encoded(frame: Any, write: Any, topic: str) -> None:
    rows = pa.table({"key": ["a", "b"], "value": [{"item": "tea", "amount": 1}, None], "partition": [0, 0]})
    assert write(rows, topic, value_format="avro", schema=AVRO) == 2
    assert frame(topic, columns=["value"]).to_arrow()["value"].to_pylist() == [b"\x06tea\x02", None]
    assert frame(topic, columns=["value"], value_format="avro", schema=AVRO).to_arrow()["value"].to_pylist() == rows["value"].to_pylist()


def test_what_does_not_fit_is_an_error_with_its_offset_or_null(frame: Any, topic: str, client: Client) -> None:
    with client.producer() as producer:
        for value in (b"\x06tea\x02", b"\x06te", b"\x06tea\x04"):
            producer.produce(topic, value, partition=1)
    typed = partial(frame, topic, value_format="avro", schema=AVRO, columns=["value"])
    with pytest.raises(FrameError, match=rf"^{topic}-1 offset 1: the value does not fit: .*; read it with errors='null' or "):
        typed().to_arrow()
    amounts = [value and value["amount"] for value in typed(errors="null").to_arrow()["value"].to_pylist()]
    assert amounts == [1, None, 2]
    assert frame(topic, value_format="json", errors="null", schema=JSON_SCHEMA).to_arrow()["value"].null_count == 3


def test_sql_has_the_same_options(
    write: Any, topic: str, broker: Broker, registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(AVRO)
    write(pa.table(ORDERS), topic, value_format="avro", schema=str(path))
    query = f'select value.item from "{topic}" where value.amount > 20'
    sql = ["sql", query, "-b", broker.bootstrap_server, "-q", "-o", "jsonl", "--value-format", "avro"]
    assert main([*sql, "--schema", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == {"item": "rice"}
    assert main([*sql, "--registry", registry.url]) == 1 and "answers 404" in capsys.readouterr().err
    assert main([*sql, "--registry", registry.url, "--errors", "null", "--schema", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert main([*sql, "--message", "x", "--schema", str(path)]) == 2 and "message: only a Protobuf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": AVRO}, "schema: it needs a value_format, json, avro, protobuf"),
        ({"value_format": "avro"}, "schema: missing; value_format=avro needs a schema"),
        ({"value_format": "avro", "schema": AVRO, "errors": "dead"}, "errors: 'dead' is neither fail nor null; a frame writes to no topic"),
        ({"value_format": "avro", "schema": "{}"}, "schema: the schema is not an Avro schema"),
        ({"value_format": "avro", "registry": "localhost:8081"}, "registry: 'localhost:8081' is not http://HOST:PORT"),
        ({"value_format": "xml"}, "value_format: 'xml' is none of bytes, text, json, avro, protobuf"),
    ],
)
def test_options_of_reading_that_do_not_fit(frame: Any, topic: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(FrameUsageError) as refused:
        frame(topic, **options)
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ORDERS, {"schema": AVRO}, "schema: it needs a value_format"),
        (ORDERS, {"value_format": "avro"}, "schema: missing; value_format=avro needs a schema"),
        ({"item": [1], "amount": [1]}, {"value_format": "avro", "schema": AVRO}, "rows: value.item is int64, and the schema has string"),
        ({"item": ["a", None], "amount": [1, 2]}, {"value_format": "avro", "schema": AVRO}, "rows: item: null is not allowed"),
        ({"a": [b"x"]}, {"value_format": "json"}, "rows: a: JSON has no form for binary"),
        ({"value": [1]}, {"value_format": "protobuf", "schema": PROTO}, "rows: value is int64, and the schema has struct<item: string"),
    ],
)
def test_rows_that_do_not_fit_leave_nothing(
    frame: Any, write: Any, topic: str, rows: dict[str, Any], options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.frames.writing.ROWS_MAX", 1)
    with pytest.raises(FrameUsageError) as refused:
        write(pa.table(rows), topic, **options)
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)
    assert frame(topic).to_arrow().num_rows == 0


def test_a_registry_that_is_away(frame: Any, write: Any, topic: str) -> None:
    away = {"value_format": "avro", "registry": "http://127.0.0.1:1"}
    for use in (partial(frame, topic), partial(write, pa.table(ORDERS), topic)):
        with pytest.raises(FrameError, match=r"^registry: no schema registry at http://127\.0\.0\.1:1/subjects/.*-value/versions/latest: "):
            use(**away)


def test_without_fastavro(frame: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    other = AVRO.replace("Order", "Other")  # a schema that no other test has left in the cache
    with pytest.raises(MissingPackageError, match="fastavro cannot be imported; install it: pip install fastavro"):
        frame(topic, value_format="avro", schema=other)
