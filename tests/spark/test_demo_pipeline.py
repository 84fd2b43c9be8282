"""The checks of the pipeline's demo report missing, duplicated and changed rows, and its picture can be drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.client import TopicPartition
from ottla.spark.commit_history import CommittedRange, CommittedTransaction, GroupCommit
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.proof import UNKNOWN_START
from tools.demo_chart import Run, draw, throughput
from tools.demo_pipeline import Source, judge_delays, last_figures, offsets_read


class Message:
    """A record as the stock client returns it."""

    def __init__(self, value: dict[str, Any], partition: int = 0, offset: int = 0) -> None:
        self._value, self._partition, self._offset = value, partition, offset

    def value(self) -> bytes:
        return json.dumps(self._value).encode()

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    """Two flights; one of them has weather data."""
    made = Source.__new__(Source)
    flight = {"carrier": "UA", "flight": 7, "origin": "JFK", "dest": "IAH", "hour": 5, "dep_delay": 2.0, "time_hour": "five"}
    made.flights = [{**flight, "row": 0}, {**flight, "row": 1, "time_hour": "six", "dep_delay": None}]
    made.airlines = {"UA": "United"}
    made.measured = {("JFK", "five")}
    return made


def right(source: Source) -> list[dict[str, Any]]:
    first, second = source.flights
    without_nulls = {key: value for key, value in second.items() if value is not None}
    return [{**first, "name": "United", "temp": 40.0}, {**without_nulls, "name": "United"}]


def wrong(source: Source, values: list[dict[str, Any]]) -> list[str]:
    return [name for name, is_right, _ in judge_delays(source, [Message(value) for value in values]) if not is_right]


def test_the_right_output_passes(source: Source) -> None:
    assert wrong(source, right(source)) == []


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda values: values[:1], ["flights", "missing, doubled"]),
        (lambda values: [*values, values[0]], ["flights", "missing, doubled"]),
        (lambda values: [values[0], values[0]], ["missing, doubled"]),
        (lambda values: [{**values[0], "dep_delay": 3.0}, values[1]], ["changed"]),
        (lambda values: [{**values[0], "name": "American"}, values[1]], ["without their airline"]),
        (lambda values: [values[0], {**values[1], "temp": 50.0}], ["without their weather"]),
    ],
)
def test_each_fault_is_named(source: Source, change: Any, names: list[str]) -> None:
    assert wrong(source, change(right(source))) == names


def test_the_last_figures_of_a_key_count() -> None:
    values = [{"carrier": "UA", "hour": 5, "flights": n, "departed": n, "minutes": 2.0 * n} for n in (3, 1, 2)]
    messages = [Message(value, offset=offset) for value, offset in zip(values, (9, 1, 4), strict=True)]
    assert last_figures([*messages, Message({"carrier": "AA", "hour": 5, "flights": 1, "departed": 0}, partition=1)]) == {
        ("UA", 5): [3, 3, 6.0],
        ("AA", 5): [1, 0, 0.0],
    }


def test_a_batch_has_read_the_offsets_that_its_commit_moves() -> None:
    """The number of offsets that a batch has read is taken from its commit, because a pipeline with aggregates writes few rows."""
    ranges = {
        TopicPartition("flights", number): CommittedRange(end, CommitMetadata("q", 3, start, rows=2))
        for number, (start, end) in enumerate([(100, 150), (UNKNOWN_START, 7), (9, 9)])
    }
    assert offsets_read(GroupCommit(CommittedTransaction(1, 1), 0, 0, ranges)) == 57


def test_throughput_is_rows_a_second_in_each_interval() -> None:
    assert throughput([(0.5, 100), (1.0, 300), (5.9, 50), (6.1, 7)], 6.0, bin_seconds=2.0) == [200.0, 0.0, 25.0, 3.5]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = Run(
        delays={5: 0.7, 19: 24.8},
        commits={"first": [(1.0, 500), (4.0, 700)], "second": [(5.0, 20)]},
        lag=[(0.0, 0), (1.0, 900), (6.0, 0)],
        kills=[(2.0, "driver")],
        seconds=7.0,
    )
    draw(run, tmp_path / "build" / "picture.png")
    assert (tmp_path / "build" / "picture.png").read_bytes().startswith(b"\x89PNG")
