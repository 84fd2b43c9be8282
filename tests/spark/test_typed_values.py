"""Typed values of the data source and the sink, without Spark: columns, rows, dead letters, and errors of one line."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest

pytest.importorskip("pyspark.sql.datasource")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ottla.client import Client, TopicPartition
from ottla.schemas.registry import HEADER
from ottla.spark import sink as sink_module
from ottla.spark.data_source import COLUMNS, OttlaDataSource
from ottla.spark.errors import MissingRequirementError, OptionError, OutputError, PipelineError, UnfitValueError
from ottla.spark.options import parse_sink
from ottla.spark.sink import encode_task, written_values
from ottla.spark.spool import SpoolWriter
from ottla.spark.typed_values import DEAD_LETTER, DEAD_LETTER_KIND
from ottla.testing.broker import Broker
from ottla.wire.records import iter_records
from tests.schemas.running_registry import Registry, running_registry
from tests.spark.pipeline import wait_for_topic

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, {"name": "amount", "type": "int"}]})
ORDER = StructType([StructField("item", StringType()), StructField("amount", IntegerType())])
TEA = {"item": "tea", "amount": 12}
AWAY = "http://127.0.0.1:1"


def encoded(value: Any = TEA) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(AVRO)), value)
    return stream.getvalue()


@pytest.fixture
def produce(client: Client, topic: str) -> Any:
    def run(*values: bytes | None, headers: Any = ()) -> None:
        with client.producer() as producer:
            for value in values:
                producer.produce(topic, value, b"k", partition=0, headers=headers)

    return run


@pytest.fixture
def given(broker: Broker, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.direct_server, "subscribe": topic, "minPartitions": "1"}


def read(options: dict[str, str], *columns: str, schema: StructType | None = None) -> list[dict[str, Any]]:
    """Returns the rows of a batch read; as in Spark, the reader is pickled for the tasks."""
    source = OttlaDataSource(options)
    known = schema or source.schema()
    chosen = StructType([known[name] for name in columns]) if columns else known
    reader = pickle.loads(pickle.dumps(source.reader(chosen)))
    rows = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert batch.schema == to_arrow_schema(chosen, timezone="UTC"), "what Spark compares it with"
            rows += batch.to_pylist()
    return rows


# Reading


def test_values_are_structs(given: dict[str, str], produce: Any) -> None:
    produce(encoded(), None)
    typed = {**given, "valueFormat": "avro", "schema": AVRO}
    assert OttlaDataSource(typed).schema().fieldNames() == COLUMNS.fieldNames()
    assert OttlaDataSource(typed).schema()["value"].dataType == ORDER
    assert [row["value"] for row in read(typed)] == [TEA, None]
    assert read(typed, "value", "offset") == [{"value": TEA, "offset": 0}, {"value": None, "offset": 1}]
    assert read(typed, "offset") == [{"offset": 0}, {"offset": 1}], "values that the query does not name are not decoded"


def test_a_registry_has_the_type_and_the_schemas_of_values(given: dict[str, str], produce: Any, topic: str) -> None:
    with running_registry() as registry:
        registry.schemas = {7: {"schema": '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}'},
                            8: {"schema": AVRO.replace('"int"', '"int", "default": 1')}}  # fmt: skip
        registry.subjects = {f"{topic}-value": [7, 8]}
        produce(HEADER.pack(0, 7) + b"\x06tea", HEADER.pack(0, 8) + encoded())
        typed = {**given, "valueFormat": "avro", "registry": registry.url}
        assert [row["value"] for row in read(typed, "value")] == [{"item": "tea", "amount": 1}, TEA]


@pytest.mark.parametrize("has_schema", [False, True])
def test_json_has_the_type_of_a_schema_or_of_the_columns(given: dict[str, str], produce: Any, has_schema: bool) -> None:
    produce(b'{"amount": 12, "item": "tea", "more": []}')
    typed = {**given, "valueFormat": "json"}
    if has_schema:
        typed["schema"] = '{"type": "object", "properties": {"item": {"type": "string"}, "amount": {"type": "integer"}}}'
        wide = StructType([StructField("item", StringType()), StructField("amount", LongType())])
        assert OttlaDataSource(typed).schema()["value"].dataType == wide
        assert read(typed, "value") == [{"value": TEA}]
    else:
        assert read(typed, schema=StructType([StructField("value", ORDER)])) == [{"value": TEA}]
        with pytest.raises(OptionError, match=r"^schema: missing; valueFormat=json needs a schema, a registry, or \.schema"):
            OttlaDataSource(typed).schema()


def test_a_value_that_does_not_fit_stops_the_query_or_is_null(given: dict[str, str], produce: Any, topic: str) -> None:
    produce(encoded(), encoded()[:-1], encoded())
    typed = {**given, "valueFormat": "avro", "schema": AVRO}
    with pytest.raises(UnfitValueError) as refused:
        read(typed, "value")
    assert str(refused.value).startswith(f"valueFormat=avro: the value of {topic}-0 at offset 1 does not fit the schema: ")
    assert str(refused.value).endswith("; errors=null or errors=TOPIC reads on") and "\n" not in str(refused.value)
    assert [row["value"] for row in read({**typed, "errors": "NULL"}, "value")] == [TEA, None, TEA]


def test_dead_letters_have_the_record_and_the_reason(
    given: dict[str, str], produce: Any, topic: str, broker: Broker, client: Client
) -> None:
    dead = broker.create_topic(f"{topic}-dead")
    wait_for_topic(client, dead)
    produce(encoded(), b"\x06te", headers=(("h", b"1"),))
    typed = {**given, "valueFormat": "avro", "schema": AVRO, "errors": dead}
    first, second = read(typed, "offset", "value", DEAD_LETTER)
    assert first == {"offset": 0, "value": TEA, DEAD_LETTER: None}
    letter = second[DEAD_LETTER]
    headers = {header["key"]: header["value"] for header in letter.pop("headers")}
    assert second["value"] is None and letter == {"topic": dead, "key": b"k", "value": b"\x06te"}
    assert headers.pop("__dlq.errors.message")
    assert headers == {
        "h": b"1", "__dlq.errors.topic": topic.encode(), "__dlq.errors.partition": b"0", "__dlq.errors.offset": b"1",
    }  # fmt: skip


TIMES = {"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}
TIME = json.dumps({"type": "record", "name": "R", "fields": [{"name": "t", "type": TIMES}]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": AVRO}, "schema: it needs the option valueFormat"),
        ({"valueFormat": "xml"}, "valueFormat: 'xml' is none of json, avro, protobuf"),
        ({"valueFormat": "avro"}, "schema: missing; valueFormat=avro needs a schema (its text or a file), or a registry"),
        ({"valueFormat": "avro", "schema": "none.avsc"}, "schema: cannot read none.avsc: no such file"),
        ({"valueFormat": "avro", "schema": "{}"}, "schema: the schema is not an Avro schema"),
        ({"valueFormat": "avro", "schema": TIME}, "schema: value.t[] is time32[ms], and Spark has no type for it"),
        ({"valueFormat": "avro", "registry": "http://127.0.0.1:1"}, "registry: no schema registry at http://127.0.0.1:1/subjects/"),
        ({"valueFormat": "avro", "schema": AVRO, "errors": "absent"}, "errors: "),
        ({"valueFromat": "avro", "schema": AVRO}, "valuefromat: no such option; did you mean valueFormat?"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_option(given: dict[str, str], options: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError) as refused:
        OttlaDataSource({**given, **options}).schema()
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)


def test_a_subject_is_for_one_topic(given: dict[str, str], registry: Registry) -> None:
    with pytest.raises(OptionError, match=r"^registry: a subject is for one topic"):
        OttlaDataSource({**given, "subscribe": "a,b", "valueFormat": "avro", "registry": registry.url}).reader(COLUMNS)


def test_a_registry_that_is_away_stops_a_task_with_one_line(given: dict[str, str], produce: Any) -> None:
    produce(HEADER.pack(0, 7) + encoded())
    with pytest.raises(PipelineError, match=r"^registry: no schema registry at http://127\.0\.0\.1:1/schemas/ids/7: [^\n]*$"):
        read({**given, "valueFormat": "avro", "schema": AVRO, "registry": "http://127.0.0.1:1", "errors": "null"}, "value")


def test_without_fastavro(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    other = AVRO.replace("Order", "Unseen")
    with pytest.raises(MissingRequirementError, match=r"fastavro cannot be imported; install it: pip install fastavro; Spark's workers"):
        OttlaDataSource({**given, "valueFormat": "avro", "schema": other}).schema()


# Writing


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def write(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    context = SimpleNamespace(partitionId=lambda: 3, taskAttemptId=lambda: 17, getLocalProperty=lambda _: "query")
    monkeypatch.setattr(sink_module.TaskContext, "get", lambda: context)

    def run(rows: Any, **options: str) -> dict[str, list[Any]]:
        """Returns the records of each topic that a task encodes from the rows."""
        parsed = parse_sink({"kafka.bootstrap.servers": broker.direct_server, "topic": topic, **options})
        values = pickle.loads(pickle.dumps(written_values(parsed, from_arrow_schema(rows.schema))))
        with SpoolWriter("task", None, None) as output:
            encode_task(iter(rows.to_batches(max_chunksize=2)), parsed, output, values=values)
            found: dict[str, list[Any]] = {}
            for batch in output.finish().batches():
                found.setdefault(batch.partition.topic, []).extend(iter_records(batch.data))
        return found

    return run


def test_rows_are_encoded_by_a_schema(write: Any, topic: str) -> None:
    rows = pa.table({"key": ["k"] * 3, "value": [{"amount": 12, "item": "tea"}, None, {"amount": 5, "item": "salt"}]})
    found = write(rows, valueFormat="avro", schema=AVRO)[topic]
    assert [record.value for record in found] == [encoded(), None, encoded({"item": "salt", "amount": 5})]
    found = write(rows.slice(0, 1), valueFormat="json")[topic]
    assert [record.value for record in found] == [b'{"amount":12,"item":"tea"}']


def test_the_schema_of_the_sink_is_stored_once(write: Any, topic: str, registry: Registry) -> None:
    rows = pa.table({"value": [TEA]})
    for _ in range(2):
        (record,) = write(rows, valueFormat="avro", schema=AVRO, registry=registry.url)[topic]
        assert record.value == HEADER.pack(0, 1) + encoded()
    assert registry.subjects == {f"{topic}-value": [1]}
    (record,) = write(rows, valueFormat="avro", registry=registry.url)[topic]
    assert record.value == HEADER.pack(0, 1) + encoded()


def test_dead_letters_are_written_instead_of_their_rows(write: Any, topic: str, broker: Broker, client: Client) -> None:
    dead = broker.create_topic(f"{topic}-dead")
    wait_for_topic(client, dead)
    letter = {"topic": dead, "key": b"k", "value": b"\xff", "headers": [{"key": "why", "value": b"x"}]}
    letters = pa.array([None, letter, None, letter], DEAD_LETTER_KIND)
    rows = pa.table({"value": [TEA, None, None, None], DEAD_LETTER: letters})
    found = write(rows, valueFormat="avro", schema=AVRO)
    assert [record.value for record in found[topic]] == [encoded(), None]
    letters_found = [(one.key, one.value, [tuple(header) for header in one.headers]) for one in found[dead]]
    assert letters_found == [(b"k", b"\xff", [("why", b"x")])] * 2
    found = write(pa.table({"value": [b"a", None], "topic": [topic, None], DEAD_LETTER: letters[:2]}), topic="")
    assert {name: len(records) for name, records in found.items()} == {topic: 1, dead: 1}
    assert TopicPartition(dead, 0) not in found


@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        ([{"item": 1}], {"valueFormat": "avro", "schema": AVRO}, OptionError, "schema: value.item is int64, and the schema has string"),
        ([{"x": 1}], {"valueFormat": "avro", "schema": AVRO}, OptionError, "schema: value.x is not in the schema"),
        ([{"item": "x"}], {"valueFormat": "avro", "schema": AVRO}, OutputError, "value: a row does not fit the schema: amount: null"),
        ([b"x"], {"valueFormat": "json"}, OptionError, "schema: JSON has no form for binary"),
        ([TEA], {"valueFormat": "avro", "registry": AWAY}, PipelineError, "registry: no schema registry at"),
        ([TEA], {"registry": AWAY}, OptionError, "registry: it needs the option valueFormat"),
        ([TEA], {"topic": "", "valueFormat": "avro", "registry": AWAY}, OptionError, "registry: a subject is for one"),
    ],
)
def test_rows_that_do_not_fit(write: Any, values: list[Any], options: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as refused:
        write(pa.table({"value": values}), **options)
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)
