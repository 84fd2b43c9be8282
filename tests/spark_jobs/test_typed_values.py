"""Typed values on a real Spark: from Avro to Avro with a registry, dead letters in the same transaction, and errors of one line."""

from __future__ import annotations

import io
import json
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

import ottla
import ottla.client
from ottla.client import Client
from ottla.schemas.registry import HEADER
from ottla.spark import Pipeline
from ottla.spark.errors import QueryFailedError
from ottla.spark.runner import run_pipelines
from ottla.spark.verify import verify
from ottla.testing.broker import Broker
from tests.schemas.running_registry import Registry, running_registry
from tests.spark_jobs.queries import failure, reader, writer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/avro_orders.py"
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, {"name": "amount", "type": "int"}]})
_TOTAL = [{"name": "item", "type": "string"}, {"name": "total", "type": ["null", "long"]}]
TOTAL = json.dumps({"type": "record", "name": "Total", "fields": _TOTAL})


def encoded(item: str, amount: int, number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(ORDER)), {"item": item, "amount": amount})
    return HEADER.pack(0, number) + stream.getvalue()


def summed(rows: Any) -> Any:
    sums = rows.groupBy("value.item").sum("value.amount")
    return sums.selectExpr("item AS key", "struct(item, `sum(value.amount AS amount)` AS total) AS value")


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    with ottla.client.connect(broker.get_bootstrap_server()) as connected:
        yield connected


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        running.schemas = {1: {"schema": ORDER}}
        yield running


def frame_of(broker: Broker, topic: str, **options: Any) -> list[Any]:
    found: list[Any] = ottla.frame(topic, bootstrap=broker.get_bootstrap_server(), progress=False, **options).to_arrow().to_pylist()
    return found


def test_the_example_from_avro_to_avro_with_dead_letters(
    spark: Any, broker: Broker, client: Client, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example from Avro to Avro with dead letters works. An unreachable registry stops it before anything is written, and after a
    restart it reads everything.
    """
    for name in ("orders", "bills", "orders-dead"):
        broker.create_topic(name, 2)
    registry.subjects = {"orders-value": [1]}
    missing_end, unknown_id = encoded("tea", 5, 1)[:-1], encoded("tea", 5, 99)
    with client.producer() as producer:
        for number in range(40):
            producer.produce("orders", encoded("tea", number, 1), b"k%d" % number)
        for value in (b"no header", missing_end, unknown_id):
            producer.produce("orders", value, b"bad")
    monkeypatch.setenv("SCHEMA_REGISTRY", registry.url)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.get_bootstrap_server())
    defined = runpy.run_path(str(EXAMPLE))["pipeline"]
    pipeline = replace(defined, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now")
    away = {**pipeline.source_options, "schema": ORDER, "registry": "http://127.0.0.1:1"}
    with pytest.raises(QueryFailedError) as failed:
        run_pipelines([replace(pipeline, source_options=away)], spark)
    said = str(failed.value)
    assert said.startswith("PipelineError: registry: no schema registry at http://127.0.0.1:1/schemas/ids/") and "\n" not in said
    assert frame_of(broker, "bills") == frame_of(broker, "orders-dead") == []

    (state,) = run_pipelines([pipeline], spark)
    assert (state.rows_in, state.rows_out) == (43, 43), "a row counts once, though Spark reads the source twice"
    bills = frame_of(broker, "bills", value_format="avro", registry=registry.url)
    assert sorted(row["value"]["total"] for row in bills) == [2 * number for number in range(40)]
    assert {row["value"]["item"] for row in bills} == {"TEA"}
    letters = frame_of(broker, "orders-dead", columns=["value", "headers"])
    reasons = {row["value"]: {header["key"]: header["value"] for header in row["headers"]} for row in letters}
    assert reasons.keys() == {b"no header", missing_end, unknown_id}
    assert reasons[b"no header"]["__dlq.errors.message"] == b"it has no header with the id of a schema"
    assert {one["__dlq.errors.topic"] for one in reasons.values()} == {b"orders"}
    found = verify(client, pipeline.group, pipeline.sinks)
    assert found.is_proved, (found.faults, found.notes)
    assert found.rows == 43, "rows and dead letters are in the same transactions"


def test_totals_and_dead_letters_in_the_mode_update(spark: Any, broker: Broker, client: Client, tmp_path: Path) -> None:
    source, sink, dead = (broker.create_topic(f"summed-{name}", 1) for name in ("orders", "totals", "dead"))
    schema = '{"type": "object", "properties": {"item": {"type": "string"}, "amount": {"type": "integer"}}}'
    with client.producer() as producer:
        for value in (b'{"item": "tea", "amount": 2}', b'{"item": 5}', b'{"item": "tea", "amount": 3}'):
            producer.produce(source, value)
    pipeline = Pipeline(
        group="summed",
        source=source,
        sink=sink,
        transform=summed,
        output_mode="update",
        bootstrap=broker.get_bootstrap_server(),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger="available-now",
        source_options={"valueFormat": "json", "schema": schema, "errors": dead},
        sink_options={"valueFormat": "avro", "schema": TOTAL},
    )
    run_pipelines([pipeline], spark)
    assert [row["value"] for row in frame_of(broker, sink, value_format="avro", schema=TOTAL)] == [{"item": "tea", "total": 5}]
    assert [row["value"] for row in frame_of(broker, dead)] == [b'{"item": 5}']


def test_batches_with_the_types_of_their_columns(spark: Any, broker: Broker) -> None:
    topic = broker.create_topic("typed-json", 1)
    value = "struct(1 AS id, array('a', NULL) AS tags, map('x', 1.5D) AS prices, DATE'2026-01-02' AS day)"
    rows = spark.sql(f"SELECT 'k' AS key, {value} AS value")
    writer(rows, broker, topic=topic, valueFormat="json").save()
    (written,) = frame_of(broker, topic)
    assert json.loads(written["value"]) == {"id": 1, "tags": ["a", None], "prices": {"x": 1.5}, "day": "2026-01-02"}
    typed = reader(spark, broker, subscribe=topic, valueFormat="json").schema("value STRUCT<id: INT, tags: ARRAY<STRING>>").load()
    assert typed.selectExpr("value.id", "value.tags[0] AS tag").collect() == [(1, "a")]
    wrong = reader(spark, broker, subscribe=topic, valueFormat="json").schema("value STRUCT<id: STRING>").load()
    assert f"UnfitValueError: valueFormat=json: the value of {topic}-0 at offset 0 does not fit the schema: " in failure(wrong.collect)
    untyped = reader(spark, broker, subscribe=topic, valueFormat="json")
    assert "OptionError: schema: missing; valueFormat=json needs" in failure(untyped.load)
    refused = failure(writer(rows, broker, topic=topic, valueFormat="avro", schema=ORDER).save)
    assert "OptionError: schema: value.id is not in the schema, which has item, amount" in refused
    assert len(frame_of(broker, topic)) == 1
