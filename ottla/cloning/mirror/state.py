"""Shows the state of a mirror (lag of each partition, errors, groups) as a dictionary, and as metrics in Prometheus' text format."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ottla.base.metric_text import labels_text
from ottla.base.types import TopicPartition
from ottla.cloning.mirror.target import MirroredTopic

State = dict[str, Any]
"""`time` in milliseconds since 1970; `lag` in offsets, None if the source or the target is not reached; `error`; `groups`: number of groups
whose offsets follow; `notes`; `bytes` copied by this run; `topics`, each with its partitions."""


def make_state(
    topics: Iterable[MirroredTopic],
    ends: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, int],
    damaged: Mapping[TopicPartition, str],
    *,
    error: str | None,
    groups: int,
    copied: int,
    notes: Sequence[str],
) -> State:
    """Makes the state. `damaged` has the errors of partitions. A partition without an end at the source or a position at the target has no
    lag yet."""
    described: list[dict[str, Any]] = []
    for topic in topics:
        partitions = []
        for partition in topic.partitions:
            source_end, end = ends.get(partition), positions.get(partition)
            lag = None if source_end is None or end is None else max(0, source_end - end)
            error_of = damaged.get(partition)
            partitions.append({"partition": partition.partition, "source_end": source_end, "end": end, "lag": lag, "error": error_of})
        described.append({"topic": topic.name, "state": topic.state, "error": topic.error, "partitions": partitions})
    lags = [one["lag"] for topic in described if topic["state"] == "mirroring" for one in topic["partitions"]]
    return {
        "time": time.time_ns() // 1_000_000, "lag": None if None in lags else sum(lags), "error": error, "groups": groups, "bytes": copied,
        "notes": list(notes), "topics": described,
    }  # fmt: skip


def metrics(state: State) -> str:
    """Returns the state as metrics."""
    lines = [
        "# HELP ottla_mirror_up Whether the last requests to source and target succeeded.", "# TYPE ottla_mirror_up gauge",
        f"ottla_mirror_up {int(state['error'] is None)}",
        "# HELP ottla_mirror_bytes_total Bytes of batches that this run has copied.", "# TYPE ottla_mirror_bytes_total counter",
        f"ottla_mirror_bytes_total {state['bytes']}",
        "# HELP ottla_mirror_groups Groups whose committed offsets follow.", "# TYPE ottla_mirror_groups gauge",
        f"ottla_mirror_groups {state['groups']}",
        "# HELP ottla_mirror_topic_failed Whether the mirroring of the topic has failed.", "# TYPE ottla_mirror_topic_failed gauge",
    ]  # fmt: skip
    lines += [f"ottla_mirror_topic_failed{labels_text(topic=one['topic'])} {int(one['state'] == 'failed')}" for one in state["topics"]]
    for name, field, help_text in (
        ("ottla_mirror_lag_offsets", "lag", "Offsets of the source that the target does not have yet."),
        ("ottla_mirror_source_end_offset", "source_end", "End of the partition at the source."),
        ("ottla_mirror_end_offset", "end", "End of the partition at the target."),
    ):
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
        for topic in state["topics"]:
            lines += [
                f"{name}{labels_text(topic=topic['topic'], partition=one['partition'])} {one[field]}"
                for one in topic["partitions"]
                if one[field] is not None
            ]
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Serves the last state at `http://HOST:PORT/metrics`. Raises OSError if it cannot listen."""

    def __init__(self, host: str, port: int) -> None:
        self._text = b""
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                is_found = self.path in ("/metrics", "/")
                self.send_response(200 if is_found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                if is_found:
                    self.wfile.write(server._text)

            def log_message(self, *_: object) -> None:
                """Does nothing: requests are not logged."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="mirror-metrics", daemon=True).start()

    def show(self, state: State) -> None:
        self._text = metrics(state).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
