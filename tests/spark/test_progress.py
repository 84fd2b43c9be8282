"""The recorder counts each batch and each commit once, over restarts and while the broker cannot be reached."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.client import Client, TopicPartition
from ottla.spark.offset_json import write_offsets
from ottla.spark.progress import ProgressRecorder, read_state, readable_progress
from ottla.spark.state_file import STOPPED, load_state
from ottla.testing.broker import Broker

from . import relay_by_hand
from .relay_by_hand import HandMadePipeline


def progress(batch_id: int, rows: int) -> dict[str, Any]:
    return {"batchId": batch_id, "numInputRows": rows, "durationMs": {"addBatch": 80, "triggerExecution": 120}}


@pytest.fixture
def pipeline(client: Client, broker: Broker) -> HandMadePipeline:
    return HandMadePipeline(client, broker)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.state.json"


def recorder(path: Path, pipeline: HandMadePipeline, broker: Broker) -> ProgressRecorder:
    made = ProgressRecorder(path, pipeline.group, bootstrap=broker.get_bootstrap_server())
    made.begin(query_id=pipeline.query_id, sources=[pipeline.source.topic], sinks=[pipeline.sink])
    return made


def test_batches_and_commits_are_counted_once_over_a_restart(path: Path, pipeline: HandMadePipeline, broker: Broker) -> None:
    first = recorder(path, pipeline, broker)
    pipeline.run()
    first.observe([progress(0, 10)], is_last=True)
    pipeline.run()
    first.observe([progress(0, 10), progress(1, 10)], is_last=True)
    first.observe([progress(0, 10), progress(1, 10)], is_last=True)
    second = recorder(path, pipeline, broker)  # the first one was killed
    pipeline.run()
    second.observe([progress(2, 10)], is_last=True)
    second.end(STOPPED)
    first._disconnect()
    state = load_state(path)
    assert state is not None
    assert (state.starts, state.batches, state.rows_in, state.commits, state.rows_out) == (2, 3, 30, 3, 30)
    assert (state.state, state.batch_id, state.batch_ms, state.lag) == (STOPPED, 2, 120, 70)
    assert state.last_commit_ms > 0


def test_a_trigger_that_found_nothing_to_do_is_no_batch(path: Path, pipeline: HandMadePipeline, broker: Broker) -> None:
    made = recorder(path, pipeline, broker)
    made.observe([{"batchId": 0, "numInputRows": 0, "durationMs": {"latestOffset": 1, "triggerExecution": 2}}])
    made.end(STOPPED)
    assert made.state.batches == 0


def test_a_broker_that_is_away_holds_up_nothing(path: Path, pipeline: HandMadePipeline) -> None:
    made = ProgressRecorder(path, pipeline.group, bootstrap="127.0.0.1:1")
    made.begin(query_id="q", sources=["a"], sinks=["b"])
    assert made.observe([progress(0, 10)], is_last=True)
    made.end(STOPPED)
    state = load_state(path)
    assert state is not None and (state.rows_in, state.commits) == (10, 0)


def test_the_state_of_another_group_is_not_continued(path: Path, pipeline: HandMadePipeline, broker: Broker) -> None:
    recorder(path, pipeline, broker).end(STOPPED)
    assert ProgressRecorder(path, "another", bootstrap="127.0.0.1:1").state.starts == 0


def test_a_state_is_read_with_the_commits_after_it(
    path: Path, pipeline: HandMadePipeline, broker: Broker, client: Client
) -> None:
    made = recorder(path, pipeline, broker)
    pipeline.run()
    made.observe([], is_last=True)
    pipeline.run()
    with_file = read_state(client, pipeline.group, path)
    without = read_state(client, pipeline.group)
    made.end(STOPPED)
    assert with_file is not None and without is not None
    assert with_file.rows_out == without.rows_out == 20
    assert (with_file.starts, without.starts) == (1, 0)
    assert read_state(client, "a-group-without-a-pipeline") is None


def test_the_lag_in_seconds_is_the_age_of_the_first_record_that_is_not_committed(
    path: Path, client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_by_hand, "TIMESTAMP_MS", relay_by_hand.TIMESTAMP_MS - 3_600_000)
    pipeline = HandMadePipeline(client, broker, rows=20)
    made = recorder(path, pipeline, broker)
    pipeline.run()
    made.observe([], is_last=True)
    assert made.state.lag == 10 and made.state.lag_seconds >= 3600
    assert {one.lag_seconds for one in made.state.positions} == {made.state.lag_seconds}
    pipeline.run()
    made.observe([], is_last=True)
    made.end(STOPPED)
    assert (made.state.lag, made.state.lag_seconds) == (0, 0.0)


def test_a_readable_report_describes_our_sources_and_says_how_far_they_are_behind() -> None:
    a, b = TopicPartition("orders", 0), TopicPartition("orders", 1)
    ours = {
        "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@7d1",
        "endOffset": json.dumps(write_offsets("g", {a: 10, b: 4})),
        "latestOffset": json.dumps(write_offsets("g", {a: 17, b: 5})),
        "metrics": {},
        "numInputRows": 3,
    }
    other = {"description": "RateStreamV2", "endOffset": "5", "latestOffset": "7", "metrics": {}}
    found = readable_progress({"batchId": 4, "sources": [ours, other, {**ours, "latestOffset": None}]})
    assert found["batchId"] == 4 and found["sources"][1] == other
    assert found["sources"][0] == {
        **ours,
        "description": "ottla[orders], group g",
        "metrics": {"minOffsetsBehindLatest": "1", "maxOffsetsBehindLatest": "7", "avgOffsetsBehindLatest": "4.0"},
    }
    assert found["sources"][2]["description"] == "ottla[orders], group g" and not found["sources"][2]["metrics"]


def test_a_readable_report_has_the_age_of_the_oldest_record_after_the_batch(client: Client, broker: Broker) -> None:
    topic = broker.create_topic("aged-orders", 2)
    a, b = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with client.producer() as producer:
        for hours in (3, 2, 1):
            producer.produce(topic, b"v", partition=0, timestamp=int(time.time() * 1000) - hours * 3_600_000)

    def seconds(end: int) -> float:
        source = {"endOffset": json.dumps(write_offsets("", {a: end, b: 0})), "latestOffset": json.dumps(write_offsets("", {a: 3, b: 0}))}
        (found,) = readable_progress({"sources": [source]}, client)["sources"]
        return float(found["metrics"]["maxSecondsBehindLatest"])

    assert seconds(1) >= 2 * 3600 > 0 == seconds(3)
    assert 2 * 3600 > seconds(2) >= 3600
