"""`ottla offsets` on a broker: each time and each way to name partitions."""

from __future__ import annotations

import json

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
    found = json.loads(ottla("offsets", *(option.replace("{t}", filled) for option in options), "-o", "json").out)["offsets"]
    assert "".join(str(row["partition"]) for row in found) == wanted


def test_what_is_refused(ottla: Ottla, topic: str) -> None:
    unknown = ottla("offsets", f"{topic}x")
    assert unknown.code == 1 and f"did you mean {topic!r}?" in unknown.err
    assert ottla("offsets", "--topic", f"{topic}y").code == 1
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
