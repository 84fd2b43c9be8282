"""`ottla.frame` returns the records of a topic to every library of DataFrames, and raises errors of one line."""

from __future__ import annotations

import datetime
import io
import subprocess
import sys
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

import ottla
from ottla.analysis import progress
from ottla.client import Client, ConnectError, OffsetOutOfRangeError, TopicPartition, UnknownTopicError
from ottla.frames import frame as frames
from ottla.frames.errors import FrameError, FrameUsageError, MissingPackageError
from ottla.frames.packages import library
from ottla.testing.broker import Broker

NOON_MS = 1_767_268_800_000
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    """Writes four records to partition 0, from noon on with an hour between them, and one record without key and value to partition 1."""
    with client.producer() as producer:
        for hour in range(4):
            headers = (("trace", b"\x01"),) if hour == 0 else ()
            producer.produce(topic, b"v%d" % hour, b"k%d" % hour, partition=0, timestamp=NOON_MS + hour * 3_600_000, headers=headers)
        producer.produce(topic, None, None, partition=1, timestamp=NOON_MS)
    return topic


def values(found: Any) -> list[Any]:
    return list(found.to_arrow().column("value").to_pylist())


def test_the_columns_of_a_frame(frame: Any, filled: str) -> None:
    table = frame(filled).to_arrow()
    assert table.schema.names == list(frames.COLUMNS)
    assert table.slice(0, 1).to_pylist() == [{"key": b"k0", "value": b"v0", "partition": 0, "offset": 0, "timestamp": NOON}]
    assert table.slice(4).to_pylist() == [{"key": None, "value": None, "partition": 1, "offset": 0, "timestamp": NOON}]
    other = frame(filled, columns=["headers", "topic", "timestampType", "value"], value_format="text", partitions=[0]).to_arrow()
    assert other.slice(0, 2).to_pylist() == [
        {"headers": [{"key": "trace", "value": b"\x01"}], "topic": filled, "timestampType": 0, "value": "v0"},
        {"headers": None, "topic": filled, "timestampType": 0, "value": "v1"},
    ]


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({}, ["v0", "v1", "v2", "v3", None]),
        ({"since": NOON_MS + 1}, ["v1", "v2", "v3"]),
        ({"since": "2026-01-01T13:00", "until": "2026-01-01T15:00Z"}, ["v1", "v2"]),
        ({"since": NOON.replace(hour=14)}, ["v2", "v3"]),
        ({"until": NOON.replace(hour=13, tzinfo=None)}, ["v0", None]),
        ({"since": "-1h"}, []),
        ({"since": "2026-01-01T15:00", "until": "2026-01-01T13:00"}, []),
        ({"partitions": [1]}, [None]),
        ({"offsets": {0: (1, 3)}}, ["v1", "v2"]),
    ],
)
def test_what_is_read(frame: Any, filled: str, limits: dict[str, Any], wanted: list[str | None]) -> None:
    assert values(frame(filled, value_format="text", **limits)) == wanted


def test_a_frame_gives_the_same_rows_again(frame: Any, filled: str, client: Client) -> None:
    made = frame(filled)
    before = made.to_arrow()
    with client.producer() as producer:
        producer.produce(filled, b"later", partition=0)
    assert made.to_arrow() == before
    assert frame(filled, offsets=made.offsets).to_arrow() == before
    assert (made.row_count_max, frame(filled).row_count_max) == (5, 6)
    assert repr(made.select(["value", "offset"])) == f"<ottla.frame {filled!r}: at most 5 rows of value: binary, offset: int64>"


def test_only_committed_records_are_read_unless_all_are_wanted(frame: Any, topic: str, client: Client) -> None:
    one = TopicPartition(topic, 0)
    for value, is_committed in ((b"kept", True), (b"aborted", False)):
        with client.producer(transactional_id=f"of-{topic}") as producer:
            producer.begin()
            producer.produce(topic, value, partition=one.partition)
            if is_committed:
                producer.commit()
            else:
                producer.flush()
                producer.abort()
    assert values(frame(topic)) == [b"kept"]
    assert values(frame(topic, isolation="read_uncommitted")) == [b"kept", b"aborted"]


def test_every_library_reads_it(frame: Any, filled: str) -> None:
    made = frame(filled, value_format="text", columns=["value", "offset"])
    rows = [("v0", 0), ("v1", 1), ("v2", 2), ("v3", 3), (None, 0)]
    assert made.to_polars().rows() == rows
    assert polars.DataFrame(made).rows() == rows, "through the stream of Arrow"
    assert [tuple(row) for row in made.to_pandas().itertuples(index=False)] == rows
    assert made.to_duckdb().filter("\"offset\" > 1").order("value").fetchall() == rows[2:4]
    own = duckdb.connect()
    own.register("orders", made)
    assert own.execute("select count(*) from orders a join orders b using (value)").fetchall() == [(4,)], "each use reads the topic anew"
    assert pa.table(made).num_rows == 5
    assert made.select(["offset"]).to_arrow().column_names == ["offset"]


def test_rows_are_read_in_a_stream(frame: Any, topic: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read as a stream: the first batch is returned when only a part of the topic was fetched."""
    monkeypatch.setattr(frames, "FETCH_BYTES", 10_000)
    with client.producer(batch_bytes=5_000) as producer:
        for number in range(3_000):
            producer.produce(topic, b"%100d" % number, partition=0)
    fetched = []
    read = Client.read

    def noted(*arguments: Any, **options: Any) -> Any:
        for answer in read(*arguments, **options):
            fetched.append(answer)
            yield answer

    monkeypatch.setattr(Client, "read", noted)
    reader = frame(topic).to_reader()
    first = reader.read_next_batch()
    assert 0 < first.num_rows < 300 and len(fetched) == 1
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 3_000
    assert len(fetched) > 20


def test_a_bar_shows_how_far_it_is(frame: Any, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0)
    monkeypatch.setattr(progress, "SHOWN_EVERY_S", 0)
    monkeypatch.setenv("TERM", "xterm")
    shown = []
    for chosen in (None, False):
        monkeypatch.setattr(sys, "stderr", Terminal())
        frame(filled, progress=chosen).to_arrow()
        shown.append(sys.stderr.getvalue())  # type: ignore[attr-defined]
    assert f"{filled} [{'#' * 24}{' ' * 6}]  80%" in shown[0] and f"[{'#' * 30}] 100%" in shown[0]
    assert shown[1] == ""


def test_a_bar_is_shown_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A progress bar is shown in a notebook, although Jupyter's kernel replaces the standard streams by a class that is not a terminal."""
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.Progress("orders", 10) as bar:
        bar.add(10)
    assert "100%" in stream.getvalue() and "\x1b" not in stream.getvalue()


# JSON


def test_json_values_have_the_types_of_a_sample(frame: Any, topic: str, client: Client) -> None:
    texts = [b'{"item": "tea", "amount": 12, "at": "2026-01-01T12:00:00"}', None, b'{"amount": 2.5, "tags": ["a"],\n "of": {"x": true}}']
    with client.producer() as producer:
        for number, text in enumerate(texts):
            producer.produce(topic, text, partition=number % 2)
    made = frame(topic, value_format="json", columns=["partition", "value"])
    first = {"item": "tea", "amount": 12.0, "at": "2026-01-01T12:00:00", "tags": None, "of": None}
    last = {"item": None, "amount": 2.5, "at": None, "tags": ["a"], "of": {"x": True}}
    assert made.to_arrow().to_pylist() == [
        {"partition": 0, "value": first}, {"partition": 0, "value": last}, {"partition": 1, "value": None},
    ]  # fmt: skip
    assert made.to_duckdb().aggregate("sum(value.amount)").fetchall() == [(14.5,)]
    assert made.select(["partition"]).to_arrow().num_rows == 3


def test_json_that_is_text_and_a_topic_without_values(frame: Any, topic: str, client: Client) -> None:
    assert frame(topic, value_format="json").to_arrow().num_rows == 0
    with client.producer() as producer:
        producer.produce(topic, b'"a\\nb"', partition=0)
    assert values(frame(topic, value_format="json")) == ["a\nb"]


@pytest.mark.parametrize(
    ("first", "later", "offset", "message"),
    [
        (b'{"a": 1}', [b"nope"], 1, "Invalid value"),
        (b'{"a": 1}', [b'{"a": "x"}'], 1, r"Column\(a\) changed from number to string"),
        (b'{"a": 1}', [b"{}", b'{"b": 1}'], 2, "unexpected field"),
        (b'{"a": 1}', [b"{}{}", b""], 1, ""),
        (b'{"a": 1}', [b'{"a":', b'1}', b"{}{}"], 1, ""),
        (b'{"a": 1}', [b'{}]}{"v":[{}'], 1, "not one JSON value"),
        (b'{"a": 1}', [b'{"a": 2}, {}'], 1, "not one JSON value"),
        (b'{"a": "x"}', [b'{"a": "\xff"}'], 1, "it is not UTF-8"),
    ],
)
def test_json_that_does_not_fit_the_sample(
    frame: Any, topic: str, client: Client, monkeypatch: pytest.MonkeyPatch, first: bytes, later: list[bytes], offset: int, message: str
) -> None:
    """If JSON values do not fit the type of the sample, each row still has its own value, whatever the values contain."""
    monkeypatch.setattr("ottla.frames.frame.SAMPLE_ROWS", 1)
    with client.producer() as producer:
        for text in (first, *later):
            producer.produce(topic, text, partition=0)
    made = frame(topic, value_format="json")
    advice = "read it with errors='null' or value_format='text'"
    with pytest.raises(FrameError, match=rf"{topic}-0 offset {offset}: the value does not fit: .*{message}.*; {advice}$"):
        made.to_arrow()


# What is wrong


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"partitions": [0, 7]}, FrameUsageError, r"partitions: topic '.*' has no partition 7, only 0 to 1$"),
        ({"offsets": {0: (0, 99)}}, FrameError, r"-0 has the offsets 0 to 4 \(exclusive\); 0 to 99 are out of range$"),
        ({"offsets": {0: (3, 2)}}, FrameUsageError, "partition 0 would end at 2, before it begins at 3$"),
        ({"offsets": {0: (0, 1)}, "since": "-1h"}, FrameUsageError, "leave out partitions, since and until$"),
        ({"since": "yesterday"}, FrameUsageError, "since: 'yesterday' is not a date and time"),
        ({"until": 1.5j}, FrameUsageError, "^until: "),
        ({"columns": ["valu"]}, FrameUsageError, "columns: there is no 'valu', only key, value, topic,"),
        ({"columns": "value"}, FrameUsageError, r"columns: a list of names, such as \['value'\]"),
        ({"columns": ["key", "key"]}, FrameUsageError, "columns: each name once, and at least one"),
        ({"key_format": "xml"}, FrameUsageError, "key_format: 'xml' is none of bytes, text"),
        ({"isolation": "none"}, FrameUsageError, "isolation: 'none' is neither read_committed nor read_uncommitted"),
        ({"config": {"security.protocol": "SSH"}}, FrameUsageError, "bootstrap, config: "),
        ({"bootstrap": "localhost:1"}, ConnectError, "cannot reach localhost:1"),
    ],
)
def test_one_line_says_what_is_wrong(frame: Any, filled: str, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        frame(filled, **arguments)
    assert "\n" not in str(caught.value)


def test_an_unknown_topic_is_named_with_the_nearest(frame: Any, filled: str) -> None:
    with pytest.raises(UnknownTopicError, match=f"topic '{filled}x' not found; did you mean '{filled}'"):
        frame(f"{filled}x")


def test_bytes_that_are_no_text(frame: Any, topic: str, broker: Broker, client: Client) -> None:
    with client.producer() as producer:
        producer.produce(topic, b"\xff", partition=0)
    with pytest.raises(FrameError, match="a value is not UTF-8; read it with value_format='bytes'"):
        frame(topic, value_format="text").to_arrow()


def test_records_that_retention_has_removed(frame: Any, filled: str, client: Client) -> None:
    made = frame(filled)
    client.delete_records({TopicPartition(filled, 0): 2})
    with pytest.raises(OffsetOutOfRangeError, match=f"reading {filled}-0 from offset 0"):
        made.to_arrow()


def test_a_missing_package_is_named_with_its_command() -> None:
    with pytest.raises(MissingPackageError, match=r"no_such_package cannot be imported; install it: pip install no_such_package$"):
        library("no_such_package")
    program = (
        "import sys; sys.modules['pyarrow'] = None\nimport ottla\ntry: ottla.frame('orders')\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "pyarrow cannot be imported; install it: pip install 'duckdb>=2' 'numpy>=2' 'pyarrow>=18'\n"


def test_the_package_offers_it_and_nothing_else() -> None:
    assert ottla.frame is frames.frame
    with pytest.raises(AttributeError, match="module 'ottla' has no attribute 'frames_of'"):
        ottla.frames_of  # noqa: B018
