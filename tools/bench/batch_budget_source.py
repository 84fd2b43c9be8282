"""The data source `ottla` with a log of its calls and of the client's requests, for `tools.bench.batch_budget`.

Each Spark process that runs a call appends one line to the file in the environment variable `LOG`: the name, the process, begin and end in
seconds since the epoch, and the CPU seconds of the process.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.client.blocking.connection import BlockingConnection
from ottla.spark.data_source import OttlaDataSource
from ottla.spark.sink import OttlaStreamWriter
from ottla.spark.source import OttlaStreamReader

LOG = "OTTLA_BATCH_BUDGET_LOG"


@contextmanager
def timed(name: str) -> Iterator[None]:
    cpu, begin = time.process_time(), time.time()
    try:
        yield
    finally:
        _append([name, os.getpid(), begin, time.time(), time.process_time() - cpu])


def _append(line: list[Any]) -> None:
    path = os.environ.get(LOG)
    if path is not None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        os.close(descriptor)


def _logged(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def logged(*arguments: Any, **named: Any) -> Any:
        with timed(name):
            return call(*arguments, **named)

    return logged


class TimedReader(OttlaStreamReader):
    latestOffset = _logged("latestOffset", OttlaStreamReader.latestOffset)
    reportLatestOffset = _logged("reportLatestOffset", OttlaStreamReader.reportLatestOffset)
    partitions = _logged("partitions", OttlaStreamReader.partitions)

    def read(self, partition: Any) -> Iterator[Any]:
        with timed("read"):
            yield from super().read(partition)


class TimedWriter(OttlaStreamWriter):
    __getstate__ = _logged("plan", OttlaStreamWriter.__getstate__)
    write = _logged("write", OttlaStreamWriter.write)
    commit = _logged("commit", OttlaStreamWriter.commit)


class TimedDataSource(OttlaDataSource):
    """Has the name of its parent class, and replaces it in a session."""

    def streamReader(self, schema: Any) -> Any:
        return TimedReader(*self._checked(schema))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from ottla.spark.options import parse_sink

        with timed("streamWriter"):
            return TimedWriter(parse_sink(self.options), schema)


def _log_requests() -> None:
    """Makes each request of this process's clients append a line when its answer has arrived."""
    send, receive = BlockingConnection.send, BlockingConnection.receive
    sent: dict[BlockingConnection, deque[tuple[str, float]]] = {}

    def logged_send(self: BlockingConnection, body: Any, **named: Any) -> None:
        sent.setdefault(self, deque()).append((type(body).__name__, time.time()))
        send(self, body, **named)

    def logged_receive(self: BlockingConnection, timeout_s: float | None = None) -> Any:
        answer = receive(self, timeout_s)
        name, begin = sent[self].popleft()
        _append([name, os.getpid(), begin, time.time(), 0.0])
        return answer

    BlockingConnection.send = logged_send  # type: ignore[method-assign]
    BlockingConnection.receive = logged_receive  # type: ignore[method-assign]


if LOG in os.environ:
    _log_requests()
