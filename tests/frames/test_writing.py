"""`ottla.write_frame` writes the rows of every library of DataFrames, all or none, and raises errors of one line for rows that do not fit.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import ottla
from ottla.client import UnknownTopicError
from ottla.frames.errors import FrameUsageError
from ottla.testing.broker import Broker

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
ORDERS = {"customer": ["ann", "bob", None], "amount": [12, 30, 5]}


@pytest.fixture
def write(broker: Broker) -> Any:
    return partial(ottla.write_frame, bootstrap=broker.bootstrap_server)


def rows_of(found: Any, *names: str) -> list[Any]:
    return sorted(found.select(names).to_arrow().to_pylist(), key=str)


@pytest.mark.parametrize(
    "made", [pa.table, polars.DataFrame, pandas.DataFrame, lambda columns: duckdb.from_arrow(pa.table(columns))],
    ids=["pyarrow", "polars", "pandas", "duckdb"],
)  # fmt: skip
def test_rows_become_json_objects(frame: Any, write: Any, topic: str, made: Callable[[Any], Any]) -> None:
    assert write(made(ORDERS), topic, key="customer") == 3
    found = rows_of(frame(topic, key_format="text", value_format="text"), "key", "value")
    assert [(row["key"], json.loads(row["value"])) for row in found] == [
        (customer, {"customer": customer, "amount": amount}) for customer, amount in (("ann", 12), ("bob", 30), (None, 5))
    ]


def test_columns_of_records_are_written_as_they_are(frame: Any, write: Any, topic: str) -> None:
    rows = pa.table({
        "key": [b"k", None], "value": ["v", None], "partition": [1, 0], "timestamp": pa.array([NOON] * 2, pa.timestamp("ms", "UTC")),
        "headers": pa.array([[{"key": "trace", "value": b"1"}], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "ignored": [1.5, 2.5],
    })  # fmt: skip
    assert write(rows, topic) == 2
    names = ("key", "value", "partition", "timestamp", "headers")
    assert rows_of(frame(topic, columns=names), *names) == [
        {"key": None, "value": None, "partition": 0, "timestamp": NOON, "headers": None},
        {"key": b"k", "value": b"v", "partition": 1, "timestamp": NOON, "headers": [{"key": "trace", "value": b"1"}]},
    ]


def test_a_topic_is_copied_through_a_query(frame: Any, write: Any, broker: Broker, topic: str) -> None:
    source = f"{topic}-source"
    broker.create_topic(source)
    assert write(pa.table({"value": ["b", "a", "c"]}), source) == 3
    chosen = frame(source, value_format="text").select(["value", "offset"]).to_duckdb().filter("value <> 'a'")
    assert write(chosen, topic, key="offset") == 2
    found = rows_of(frame(topic, key_format="text", value_format="text"), "key", "value")
    assert found == [{"key": "0", "value": "b"}, {"key": "2", "value": "c"}]


def test_many_batches_are_one_transaction(frame: Any, write: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many batches are one transaction: if a row cannot be written after other rows were sent, no reader of committed records gets any of
    them.
    """
    monkeypatch.setattr("ottla.frames.writing.ROWS_MAX", 2)
    with pytest.raises(FrameUsageError, match="rows: column 'partition': there is no partition 7 of topic"):
        write(pa.table({"value": ["a", "b", "c", "d", "e"], "partition": [0, 1, 0, 1, 7]}), topic)
    assert frame(topic).to_arrow().num_rows == 0
    assert frame(topic, isolation="read_uncommitted").to_arrow().num_rows == 4
    assert write(pa.table({"value": ["a", "b", "c"]}), topic) == 3
    assert frame(topic).to_arrow().num_rows == 3


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([1], {}, "rows: a DataFrame, or a table that gives an Arrow stream, not list"),
        (pa.table({"a": [1]}), {"key": "b"}, "key: there is no column 'b', only a"),
        (pa.table({"a": [1]}), {"value": "b"}, "value: there is no column 'b', only a"),
        (pa.table({"a": [b"x"]}), {}, "rows: column 'a' has bytes, which JSON cannot hold; name the column of the values with `value`"),
        (pa.table({"a": pa.array([b"x"], pa.binary_view())}), {}, "rows: column 'a' has bytes"),
        (pa.table({"a": [[{"b": b"x"}]]}), {}, "rows: column 'a' has bytes"),
        (pa.table({"a": pa.array([[("b", b"x")]], pa.map_(pa.string(), pa.binary()))}), {}, "rows: column 'a' has bytes"),
        (pa.table({"a": pa.array([b"x"]).dictionary_encode()}), {}, "rows: column 'a' has bytes"),
        (pa.table({"a": [1.5]}), {"value": "a"}, "rows: column 'value' is of type double; it has to be a string or binary"),
        (pa.table({"a": [1.5], "v": ["x"]}), {"value": "v", "key": "a"}, "rows: column 'key' is of type double"),
        (pa.table({"value": ["x"]}), {"compression": "rar"}, "rows: compression 'rar' is none of none, gzip"),
        (pa.table({"value": ["x" * (1 << 21)]}), {}, "rows: a record of 2097"),
        (pa.table({"value": ["x"]}), {"config": {"security.protocol": "WRONG"}}, "bootstrap, config: "),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(frame: Any, write: Any, topic: str, rows: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(FrameUsageError) as caught:
        write(rows, topic, **options)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert "kafka." not in str(caught.value), "an option of Spark is no advice here"
    assert frame(topic).to_arrow().num_rows == 0


def test_an_unknown_topic(write: Any) -> None:
    with pytest.raises(UnknownTopicError, match="absent"):
        write(pa.table({"value": ["x"]}), "absent")


def test_no_rows(frame: Any, write: Any, topic: str) -> None:
    assert write(pa.table({"value": pa.array([], pa.string())}), topic) == 0
    assert frame(topic, isolation="read_uncommitted").to_arrow().num_rows == 0
