"""Spark finds the data source, gets its columns, and the first checks of options are made."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ottla.client import connect
from ottla.spark.data_source import COLUMNS, COLUMNS_WITH_HEADERS, OttlaDataSource
from ottla.spark.errors import MissingRequirementError, OptionError, PipelineError
from ottla.spark.spark_versions import ReadMaxRows
from ottla.testing.broker import Broker

AWAY = {"kafka.bootstrap.servers": "localhost:1"}


def test_spark_finds_it_by_itself() -> None:
    import pyspark_ottla

    assert pyspark_ottla.DefaultSource is OttlaDataSource
    assert OttlaDataSource.name() == "ottla"


def test_columns_are_those_of_the_kafka_connector(broker: Broker) -> None:
    given = {"kafka.bootstrap.servers": broker.direct_server, "subscribe": broker.create_topic("columns"), "includeHeaders": "true"}
    assert OttlaDataSource(given).schema() == COLUMNS_WITH_HEADERS
    assert COLUMNS_WITH_HEADERS.fieldNames() == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    text, unknown = StructType([StructField("value", StringType())]), StructType([StructField("values", BinaryType())])
    for schema in COLUMNS_WITH_HEADERS, StructType(), text, unknown:
        with pytest.raises(OptionError, match="schema: the columns are struct<key:binary,"):
            OttlaDataSource({**given, "includeHeaders": "false"}).streamReader(schema).initialOffset()


def test_a_schema_chooses_columns(broker: Broker) -> None:
    topic = broker.create_topic("chosen")
    with connect(broker.direct_server) as client, client.producer() as producer:
        producer.produce(topic, b"v", b"k", headers=(("h", b"1"),))
    given = {"kafka.bootstrap.servers": broker.direct_server, "subscribe": topic, "includeHeaders": "true"}
    for chosen in (("offset", "value"), ("topic", "headers"), ("key",)):
        schema = StructType([StructField(name, COLUMNS_WITH_HEADERS[name].dataType) for name in chosen])
        reader = pickle.loads(pickle.dumps(OttlaDataSource(given).reader(schema)))
        (rows,) = (rows for partition in reader.partitions() for rows in reader.read(partition))
        assert rows.schema == to_arrow_schema(schema, timezone="UTC"), "what Spark compares it with"
        record = {"offset": 0, "value": b"v", "topic": topic, "headers": [{"key": "h", "value": b"1"}], "key": b"k"}
        assert rows.to_pylist() == [{name: record[name] for name in chosen}]


def test_a_pattern_that_matches_nothing_yet_is_for_streams(broker: Broker) -> None:
    source = OttlaDataSource({"kafka.bootstrap.servers": broker.direct_server, "subscribePattern": "matches-later-.*"})
    schema = source.schema()
    assert source.streamReader(schema).initialOffset().keys() == {"@ottla"}
    with pytest.raises(OptionError, match=r"subscribePattern: no topic matches"):
        source.reader(schema).partitions()  # type: ignore[attr-defined]


def test_options_are_checked_when_a_dataframe_is_made() -> None:
    with pytest.raises(OptionError, match="maxoffsetpertrigger: no such option; did you mean maxOffsetsPerTrigger"):
        OttlaDataSource({**AWAY, "subscribe": "t", "maxOffsetPerTrigger": "5"})
    with pytest.raises(OptionError, match="exactly one of them says what to read"):
        OttlaDataSource(AWAY).schema()


def test_a_stream_that_makes_no_sense_says_so_whatever_it_is_asked_first(broker: Broker) -> None:
    given = {"kafka.bootstrap.servers": broker.direct_server, "subscribe": broker.create_topic("endless"), "endingOffsets": "latest"}
    refused: Any = OttlaDataSource(given).streamReader(COLUMNS)
    for ask in (
        refused.initialOffset,
        refused.prepareForTriggerAvailableNow,
        lambda: refused.latestOffset({}, ReadMaxRows(1)),
        lambda: refused.partitions({}, {}),
    ):
        with pytest.raises(OptionError, match=r"^endingOffsets: only a batch read ends"):
            ask()


def test_a_broker_that_is_not_there() -> None:
    with pytest.raises(PipelineError, match=r"kafka.bootstrap.servers=localhost:1: cannot reach localhost:1"):
        OttlaDataSource({**AWAY, "subscribe": "t"}).schema()


def test_a_table_without_its_options() -> None:
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        OttlaDataSource({}).reader(COLUMNS)
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        OttlaDataSource({}).writer(COLUMNS, False)


def test_a_worker_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingRequirementError, match=r"pyarrow is missing in .*python.*pip install pyarrow there.*PYSPARK_PYTHON"):
        OttlaDataSource(AWAY)
