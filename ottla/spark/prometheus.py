"""Metrics of pipelines in Prometheus' text format, for a file that node_exporter reads or an HTTP port of the pipeline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from ottla.spark.local_files import replace_file
from ottla.spark.state_file import RUNNING, PipelineState


class Metric(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[PipelineState], float]


METRICS = (
    Metric("ottla_pipeline_up", "gauge", "1 while the pipeline's query runs", lambda state: state.state == RUNNING),
    Metric("ottla_pipeline_restarts_total", "counter", "Starts of the pipeline after its first one", lambda state: state.restarts or 0),
    Metric("ottla_pipeline_batches_total", "counter", "Micro-batches that Spark has run", lambda state: state.batches),
    Metric("ottla_pipeline_input_rows_total", "counter", "Rows that these batches have read", lambda state: state.rows_in),
    Metric("ottla_pipeline_commits_total", "counter", "Batches that were committed", lambda state: state.commits),
    Metric("ottla_pipeline_output_rows_total", "counter", "Rows in committed batches", lambda state: state.rows_out),
    Metric("ottla_pipeline_batch_seconds", "gauge", "How long the latest batch took", lambda state: state.batch_ms / 1000),
    Metric("ottla_pipeline_last_commit_timestamp_seconds", "gauge", "Time of the latest commit", lambda state: state.last_commit_ms / 1000),
)
PARTITION_METRICS = (
    ("ottla_pipeline_committed_offset", "The committed offset of each source partition", "committed"),
    ("ottla_pipeline_lag", "Offsets of each source partition that are not committed yet", "lag"),
    ("ottla_pipeline_lag_seconds", "Age of the first record of each source partition that is not committed yet", "lag_seconds"),
)


def render(states: Sequence[PipelineState]) -> str:
    lines = []
    for metric in METRICS:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f'{metric.name}{{group="{_label(state.group)}"}} {float(metric.value(state))}' for state in states]
    for name, help_text, attribute in PARTITION_METRICS:
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
        for state in states:
            for one in state.positions:
                labels = f'group="{_label(state.group)}",topic="{_label(one.topic)}",partition="{one.partition}"'
                lines.append(f"{name}{{{labels}}} {float(getattr(one, attribute))}")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_metrics_file(path: Path, states: Sequence[PipelineState]) -> None:
    """Writes the text to a temporary file and renames it, as node_exporter requires."""
    replace_file(path, render(states), 0o644)


class MetricsServer:
    """Serves `/metrics` on a loopback port, in its own thread, until `close`. Port 0 chooses a free one."""

    def __init__(self, port: int, states: Callable[[], Sequence[PipelineState]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_found = self.path.split("?")[0] == "/metrics"
                body = (render(states()) if is_found else "see /metrics\n").encode()
                self.send_response(200 if is_found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Does nothing: requests are not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="pipeline-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
