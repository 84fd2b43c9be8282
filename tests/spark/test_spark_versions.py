"""The source works with the calls of Spark 4.0 and 4.1: they ask for the latest offset without a start, and after a restart first for the
ranges of the last batch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")
pytest.importorskip("pyarrow")

from ottla.client import Client, TopicPartition
from ottla.spark import source as source_module
from ottla.spark.errors import DataLossError
from ottla.spark.source import OttlaStreamReader
from ottla.testing.broker import Broker
from tests.spark.reading import Fill, options_of, values

ROOT = Path(__file__).resolve().parents[2]


class OldSpark:
    """A query of such a version of Spark. `offsets` is its offset log; all batches are committed. `start` makes a new reader, as after a
    restart.
    """

    def __init__(self, broker: Broker, topic: str, **options: str) -> None:
        self._options = options_of(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4", **options)
        self.topic = topic
        self.offsets: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        self.reader = OttlaStreamReader(self._options)
        if self.offsets:
            assert values(self.reader, self.reader.partitions(self.offsets[-1], self.offsets[-1])) == []

    def trigger(self) -> list[bytes] | None:
        """Runs a batch and returns its values; None if there is no new offset."""
        end = json.loads(json.dumps(self.reader.latestOffset()))
        start = self.offsets[-1] if self.offsets else self.reader.initialOffset()
        if self.offsets and end == start:
            return None
        self.offsets.append(end)
        return [row[3] for row in values(self.reader, self.reader.partitions(start, end))]

    def run(self) -> list[int]:
        """Runs batches until there is no new offset, and returns their sizes. Checks that no row is missing or duplicated so far."""
        sizes = []
        while (found := self.trigger()) is not None:
            sizes.append(len(found))
        return sizes


@pytest.fixture(autouse=True)
def old_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "has_start_of_batches", lambda: False)


def test_batches_are_bounded_from_the_first_one(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 10)
    query = OldSpark(broker, topic, trigger="continuous")
    assert query.run() == [0, 4, 4, 2]
    fill(0, 5, first=10)
    assert query.run() == [4, 1]
    query.start()
    assert query.run() == []
    fill(1, 6)
    query.start()
    assert query.run() == [4, 2]


def test_a_query_that_stops_by_itself_reads_up_to_the_end_at_its_start(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 6)
    query = OldSpark(broker, topic, trigger="available-now")
    assert query.trigger() == []
    fill(0, 5, first=6)
    assert query.run() == [4, 2]
    query.start()
    assert query.trigger() == [b"6", b"7", b"8", b"9"]
    fill(0, 5, first=11)
    assert query.run() == [1]


def test_without_the_option_the_first_batch_has_everything(broker: Broker, topic: str, fill: Fill) -> None:
    """Without the option `trigger` the first batch has all records. Spark's triggers `once` and `availableNow` ask only once, and a source
    cannot distinguish them from others.
    """
    fill(0, 10)
    query = OldSpark(broker, topic)
    assert query.run() == [10]
    fill(0, 9, first=10)
    assert query.run() == [4, 4, 1]
    fill(1, 9)
    query.start()
    assert query.run() == [9]


def test_a_batch_that_was_not_committed_runs_again_and_the_next_one_follows(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 10)
    query = OldSpark(broker, topic, trigger="continuous")
    assert (query.trigger(), query.trigger()) == ([], [b"0", b"1", b"2", b"3"])
    query.reader = OttlaStreamReader(query._options)
    again = query.reader.partitions(query.offsets[0], query.offsets[1])
    assert [row[3] for row in values(query.reader, again)] == [b"0", b"1", b"2", b"3"]
    assert query.run() == [4, 2]


def test_a_log_that_was_cut_is_noticed(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    fill(0, 10)
    query = OldSpark(broker, topic, trigger="continuous")
    query.run()
    later = {**query.offsets[-1], topic: {"0": 99, "1": 0}}
    query.reader = OttlaStreamReader(query._options)
    with pytest.raises(DataLossError, match="would continue from 99"):
        query.reader.partitions(later, query.offsets[-1])


def test_the_groups_offsets_are_where_a_new_query_begins(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    fill(0, 10)
    client.commit(f"{topic}-g", {TopicPartition(topic, 0): 7})
    query = OldSpark(broker, topic, trigger="continuous", group=f"{topic}-g")
    assert query.trigger() == [] and query.trigger() == [b"7", b"8", b"9"]


def test_an_empty_plan_has_one_partition_that_is_none(broker: Broker, topic: str) -> None:
    assert list(OttlaStreamReader(options_of(broker, subscribe=topic)).read(None)) == []


@pytest.mark.parametrize("version", ["3.5.9", "2.4.8"])
def test_a_spark_without_data_sources_in_python_is_one_line(tmp_path: Path, version: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import pyspark, ottla.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"PySpark {version} has no data sources in Python; PySpark 4.0 or later is needed" in done.stderr
