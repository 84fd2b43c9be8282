"""Spark's entry: how it is found, its columns, and the first checks."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("pyspark.sql.datasource")

from ottla.spark.data_source import COLUMNS, COLUMNS_WITH_HEADERS, OttlaDataSource
from ottla.spark.errors import MissingRequirementError, OptionError, PipelineError
from ottla.testing.broker import Broker

AWAY = {"kafka.bootstrap.servers": "localhost:1"}


def test_spark_finds_it_by_itself() -> None:
    import pyspark_ottla

    assert pyspark_ottla.DefaultSource is OttlaDataSource
    assert OttlaDataSource.name() == "ottla"


def test_columns_are_those_of_the_kafka_connector_and_fixed(broker: Broker) -> None:
    given = {"kafka.bootstrap.servers": broker.direct_server, "subscribe": broker.create_topic("columns"), "includeHeaders": "true"}
    assert OttlaDataSource(given).schema() == COLUMNS_WITH_HEADERS
    assert COLUMNS_WITH_HEADERS.fieldNames() == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    with pytest.raises(OptionError, match="schema: the columns are fixed"):
        OttlaDataSource(given).reader(COLUMNS)
    with pytest.raises(OptionError, match="schema: the columns are fixed"):
        OttlaDataSource({**given, "includeHeaders": "false"}).streamReader(COLUMNS_WITH_HEADERS)


def test_options_are_checked_when_a_dataframe_is_made() -> None:
    with pytest.raises(OptionError, match="maxoffsetpertrigger: no such option; did you mean maxOffsetsPerTrigger"):
        OttlaDataSource({**AWAY, "subscribe": "t", "maxOffsetPerTrigger": "5"})
    with pytest.raises(OptionError, match="exactly one of them says what to read"):
        OttlaDataSource(AWAY).schema()


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
    with pytest.raises(MissingRequirementError, match=r"pyarrow is missing in .*python.*pip install 'ottla\[spark\]'.*PYSPARK_PYTHON"):
        OttlaDataSource(AWAY)
