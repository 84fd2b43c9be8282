"""`ottla pipeline run` as a process: it is killed while it works, started again, and stopped by SIGTERM; every record is written once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import ottla.client
from ottla.client import Client, ClientError, Committed, TopicPartition
from ottla.spark.state_file import KILLED, RUNNING, STOPPED
from ottla.spark.verify import verify
from ottla.testing.broker import Broker
from tests.spark_jobs.quick_java import SPARK_JAVA
from tests.tidy.sources import ROOT

ROWS = 1500
"""Fifteen batches: the kill, after some, is far from the last."""
KILLED_AFTER = 300
START_SECONDS_MAX = 400
JAVAS_TRACE = "at org.apache.spark"
REFUSED_BY_SPARK = re.compile("CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently using")
PYTHON_WITHOUT_SEARCH = """#!/bin/sh
case "$*" in *lookup_data_sources*) touch searched; exit 1 ;; esac
exec {python} "$@"
"""
DEFINITION = """
from ottla.spark import Pipeline


def same(batches):
    yield from batches


def transform(rows):
    return rows.select("key", "value").mapInArrow(same, "key binary, value binary")


pipeline = Pipeline(
    group="copy", source="in", sink="out", transform=transform,
    source_options={"maxOffsetsPerTrigger": "100"}, settings={"spark.ui.enabled": "false"},
)
"""


@contextmanager
def running(directory: Path, address: str, *options: str, python: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `ottla pipeline run` in its own process group, which is killed at the end. `python` is the interpreter of Spark's workers."""
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", "copied_rows.py", "-b", address, "--master", "local[2]", *options]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": SPARK_JAVA, "PYTHONPATH": str(ROOT)}
    if python is not None:
        environment["PYSPARK_PYTHON"] = str(python)
    with (directory / "run.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        assert process.poll() is None, (directory / "run.log").read_text()
        assert time.monotonic() < deadline, (directory / "run.log").read_text()
        time.sleep(0.1)


def committed(client: Client) -> int:
    try:
        return client.committed("copy", [TopicPartition("in", 0)]).get(TopicPartition("in", 0), Committed(0)).offset
    except ClientError:
        return 0


def status(directory: Path, client: Client) -> tuple[str, int | None]:
    """Returns the state and the restarts; the log has the same number of restarts as the state file."""
    from ottla.spark.progress import read_state

    state = read_state(client, "copy", directory / "checkpoints" / "copy.state.json")
    assert state is not None
    if committed(client):
        assert state.log_restarts == state.restarts
    return state.state, state.restarts


@pytest.mark.timeout(3 * START_SECONDS_MAX)
def test_it_survives_kills_and_stops_when_asked(java: str, tmp_path: Path) -> None:
    (tmp_path / "copied_rows.py").write_text(DEFINITION)
    with Broker(topics=["in", "out:2"]) as broker, ottla.client.connect(broker.get_bootstrap_server()) as client:
        with client.producer() as producer:
            for number in range(ROWS):
                producer.produce("in", b"%d" % number, key=b"%d" % number)
        address = broker.get_bootstrap_server()
        with running(tmp_path, address) as process:
            wait_for(lambda: committed(client) >= KILLED_AFTER, process, tmp_path)
            kill_group(process)
        assert 0 < committed(client) < ROWS
        assert status(tmp_path, client) == (KILLED, 0)
        with running(tmp_path, address, "--metrics-port", "0", "--metrics-file", "copy.prom") as process:
            wait_for(lambda: committed(client) == ROWS, process, tmp_path)
            assert status(tmp_path, client) == (RUNNING, 1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(START_SECONDS_MAX) == 0, (tmp_path / "run.log").read_text()
        assert status(tmp_path, client) == (STOPPED, 1)
        assert f'ottla_pipeline_lag{{group="copy",topic="in",partition="0"}} {0.0}' in (tmp_path / "copy.prom").read_text()
        found = verify(client, "copy", ["out"])
        assert found.is_proved and found.rows == ROWS, found
        values = [
            int(record.value or b"")
            for number in range(2)
            for fetched in client.read(TopicPartition("out", number), 0, found.sink[number].end)
            for record in fetched.records()
        ]
    assert sorted(values) == list(range(ROWS))


@pytest.mark.night
@pytest.mark.timeout(3 * START_SECONDS_MAX)
def test_a_second_run_on_the_same_checkpoint_ends_one_of_the_two(java: str, tmp_path: Path) -> None:
    """If two runs use the same checkpoint, one of them ends. `LOCAL_CHECKPOINTS` may replace a checkpoint file that Spark would not replace
    by default; the sink must notice that. With `-v` Java's stack trace is printed.
    """
    (tmp_path / "copied_rows.py").write_text(DEFINITION)
    with Broker(topics=["in", "out"]) as broker, ottla.client.connect(broker.get_bootstrap_server()) as client:
        address, sent = broker.get_bootstrap_server(), 0
        with client.producer() as producer, running(tmp_path, address, "-v") as first, running(tmp_path, address, "-v") as second:
            deadline = time.monotonic() + 2 * START_SECONDS_MAX
            while first.poll() is None and second.poll() is None:
                assert time.monotonic() < deadline, (tmp_path / "run.log").read_text()
                producer.produce("in", b"%d" % sent)
                producer.flush()
                sent += 1
                with suppress(subprocess.TimeoutExpired):
                    first.wait(0.02)
        assert first.poll() == 1 or second.poll() == 1, (tmp_path / "run.log").read_text()
        said = (tmp_path / "run.log").read_text()
        assert "a second copy of the pipeline" in said or REFUSED_BY_SPARK.search(said), said
        assert JAVAS_TRACE in said
        with running(tmp_path, address) as third:
            wait_for(lambda: committed(client) == sent, third, tmp_path)
        found = verify(client, "copy", ["out"])
        assert found.is_proved and found.rows == sent, found
        fetched = client.read(TopicPartition("out", 0), 0, found.sink[0].end)
        assert [int(record.value or b"") for batch in fetched for record in batch.records()] == list(range(sent))


@pytest.mark.timeout(3 * START_SECONDS_MAX)
def test_a_misspelt_function_is_one_line(java: str, tmp_path: Path) -> None:
    """A misspelt function in the pipeline's file gives an error of one line; without `-v` Java's stack trace is not printed. Spark searches
    for Python sources only once in a process. Here the worker that searches dies, and the pipeline still knows the format.
    """
    python = tmp_path / "python"
    python.write_text(PYTHON_WITHOUT_SEARCH.format(python=sys.executable))
    python.chmod(0o755)
    wrong = DEFINITION.replace('rows.select("key", "value")', 'rows.selectExpr("uper(key) AS key", "value")')
    (tmp_path / "copied_rows.py").write_text(wrong)
    with Broker(topics=["in", "out"]) as broker, running(tmp_path, broker.direct_server, python=python) as process:
        assert process.wait(START_SECONDS_MAX) == 1
    assert (tmp_path / "searched").exists()
    said = (tmp_path / "run.log").read_text()
    (error,) = [line for line in said.splitlines() if "uper" in line]
    assert error.startswith("error: [UNRESOLVED_ROUTINE] Cannot resolve routine `uper`"), said
    assert JAVAS_TRACE not in said and "java.lang" not in said, said
