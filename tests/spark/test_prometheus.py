"""The metrics of a pipeline can be parsed by Prometheus' own parser, from a file and over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.spark.prometheus import METRICS, PARTITION_METRICS, MetricsServer, render, write_metrics_file
from ottla.spark.state_file import RUNNING, PipelineState, SourcePosition
from tests.server.monitoring.test_metric_families import DASHBOARDS, expressions_of, labels_asked_for, metrics_asked_for

STATES = [
    PipelineState(
        group='odd "name"\\',
        state=RUNNING,
        starts=3,
        rows_out=336_776,
        batch_ms=250,
        positions=[SourcePosition(topic="flights", partition=1, committed=40, end=55)],
    ),
    PipelineState(group="other"),
]


def samples(text: str) -> dict[tuple[str, str, str], float]:
    return {
        (one.name, one.labels["group"], one.labels.get("partition", "")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_every_metric_is_there_for_every_pipeline() -> None:
    found = samples(render(STATES))
    group = STATES[0].group
    assert found["ottla_pipeline_up", group, ""] == 1 and found["ottla_pipeline_up", "other", ""] == 0
    assert found["ottla_pipeline_restarts_total", group, ""] == 2
    assert found["ottla_pipeline_output_rows_total", group, ""] == 336_776
    assert found["ottla_pipeline_batch_seconds", group, ""] == 0.25
    assert found["ottla_pipeline_lag", group, "1"] == 15
    assert len(found) == 2 * len(METRICS) + len(PARTITION_METRICS)


def test_the_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "collected" / "pipeline.prom"
    for _ in range(2):
        write_metrics_file(path, STATES)
    assert samples(path.read_text()) == samples(render(STATES))
    assert [one.name for one in path.parent.iterdir()] == ["pipeline.prom"]


def test_the_port_serves_the_state_of_the_moment() -> None:
    states = [PipelineState(group="g")]
    server = MetricsServer(0, lambda: states)
    try:
        address = f"http://127.0.0.1:{server.port}"
        states[0].rows_in = 7
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert samples(answer.read().decode())["ottla_pipeline_input_rows_total", "g", ""] == 7
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(f"{address}/else")
        caught.value.close()
    finally:
        server.close()


def test_the_board_asks_for_metrics_and_labels_that_are_there() -> None:
    expressions = list(expressions_of(json.loads((DASHBOARDS / "pipelines.json").read_text())))
    partition = {"group", "topic", "partition"}
    labels = {one.name: {"group"} for one in METRICS} | {name: partition for name, _, _ in PARTITION_METRICS}
    asked = set()
    for expression in expressions:
        names = metrics_asked_for(expression)
        assert names and names <= set(labels), expression
        assert labels_asked_for(expression) <= set().union(*(labels[name] for name in names)), expression
        asked |= names
    assert asked == set(labels), "each metric is on the board"
