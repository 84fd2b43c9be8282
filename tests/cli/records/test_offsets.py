"""`ottla offsets` on a broker: each time and each way to name partitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.cli.command import UsageError
from ottla.cli.records.offsets import Selection, parse_time
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


@pytest.fixture
def filled(broker: Broker, topic: str, ottla: Ottla) -> str:
    """Two partitions; the first has records of second 0, 2, 1 after the start, of which the first is deleted, the second is empty."""
    ottla("topic", "add-partitions", topic, "-n", 1)
    for second in (0, 2, 1):
        broker.add_record(topic, "x", partition=0, timestamp=1_600_000_000_000 + second * 1000)
    ottla("topic", "trim", topic, "--partition", 0, "--before", 1, "-y")
    return topic


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        ("latest", ["0:3", "1:0"]),
        ("-1", ["0:3", "1:0"]),
        ("earliest", ["0:1", "1:0"]),
        ("-2", ["0:1", "1:0"]),
        ("max-timestamp", ["0:1"]),
        ("-3", ["0:1"]),
        ("1600000000500", ["0:1"]),
        ("2020-09-13T12:26:42", ["0:1"]),
        ("2999-01-01", []),
        ("-1h", []),
    ],
)
def test_times(ottla: Ottla, filled: str, time: str, wanted: list[str]) -> None:
    result = ottla("offsets", filled, "--time", time, "-o", "plain")
    assert (result.code, result.out.split()) == (0, [f"{filled}:{rest}" for rest in wanted])


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--topic", "{t}"], "01"),
        (["--topic", "{t}", "--partitions", "1"], "1"),
        (["--topic-partitions", "{t}"], "01"),
        (["--topic-partitions", "{t}:1"], "1"),
        (["--topic-partitions", "{t}:0-1"], "0"),
        (["--topic-partitions", "{t}:1-"], "1"),
        (["--topic-partitions", "{t}:-1"], "0"),
        (["--topic-partitions", "{t}:0,{t}:1"], "01"),
    ],
)
def test_partitions(ottla: Ottla, filled: str, options: list[str], wanted: str) -> None:
    found = ottla("offsets", *(option.replace("{t}", filled) for option in options), "-o", "json").json()["offsets"]
    assert "".join(str(row["partition"]) for row in found) == wanted


def test_what_is_refused(ottla: Ottla, topic: str) -> None:
    unknown = ottla("offsets", f"{topic}x")
    assert unknown.code == 1 and f"did you mean {topic!r}?" in unknown.err
    assert ottla("offsets", "--topic", f"{topic}y").code == 1
    for words in (["--topic-partitions", f"{topic}y"], ["--topic-partitions", f"{topic}:99"], [topic, "--partitions", "99"]):
        result = ottla("offsets", *words)
        assert (result.code, result.out) == (1, "") and f"no partition matches {words[-2]} {words[-1]}" in result.err
    for words in (["--time", "soon"], ["--partitions", "x"], ["--topic-partitions", "t:x"], ["--topic-partitions", "t", "--topic", "t"]):
        assert ottla("offsets", *words).code == 2


def test_a_selection_is_an_expression_and_a_range() -> None:
    assert Selection("a.*:1-3").has(TopicPartition("abc", 2))
    assert not Selection("a.*:1-3").has(TopicPartition("abc", 3))
    assert Selection(":0").has(TopicPartition("anything", 0))
    with pytest.raises(UsageError):
        Selection("a:")


def test_words_are_numbers_of_the_protocol() -> None:
    words = ("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered")
    assert [parse_time(word) for word in words] == [-1, -2, -3, -4, -5]


# Deleting records by a file of offsets


def _file(path: Path, *entries: object) -> Path:
    path.write_text(json.dumps({"partitions": list(entries), "version": 1}))
    return path


def test_records_before_an_offset_go(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    for number in range(3):
        broker.add_record(topic, str(number))
    file = _file(tmp_path / "offsets.json", {"topic": topic, "partition": 0, "offset": 2})
    unasked = ottla("records", "delete", "--offset-json-file", file)
    assert unasked.code == 2
    assert len(broker.records(topic)) == 3
    done = ottla("records", "delete", "--offset-json-file", file, "--yes", "-o", "json")
    assert done.code == 0
    assert done.json()["partitions"] == [{"topic": topic, "partition": 0, "low_watermark": 2, "error": None}]
    assert [record.value for record in broker.records(topic)] == [b"2"]


def test_one_bad_item_fails_and_the_others_are_done(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.add_record(topic, "x")
    entries = [{"topic": topic, "partition": 0, "offset": 99}, {"topic": topic, "partition": 7, "offset": 0}]
    result = ottla("records", "delete", "--offset-json-file", _file(tmp_path / "f", *entries), "--yes", "-o", "json")
    assert result.code == 1
    assert [row["error"] for row in result.json()["partitions"]] == ["OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert len(broker.records(topic)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not {"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "entry 1: needs topic, partition and offset"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 0, "offset": 2}]}', "names t-0 twice"),
    ],
)
def test_a_bad_file(offline: Ottla, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(text)
    result = offline("records", "delete", "--offset-json-file", path, "--yes")
    assert result.code == 2
    assert message in result.err
    assert offline("records", "delete", "--offset-json-file", tmp_path / "none", "--yes").code == 2
