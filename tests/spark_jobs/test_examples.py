"""The examples of `ottla pipeline --help` work in this run's Spark session. An example that runs until Ctrl-C is stopped by SIGINT."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.cli.examples import examples_of
from ottla.cli.main import EXIT_INTERRUPTED, main
from ottla.client import Client, ClientError, Committed, TopicPartition
from ottla.testing.broker import Broker

GROUP, SOURCE, SINK = "example", "example-words", "example-loud-words"
DEFINITION = f"""
from ottla.spark import Pipeline

pipeline = Pipeline(
    group="{GROUP}", source="{SOURCE}", sink="{SINK}",
    transform=lambda rows: rows.selectExpr("key", "upper(cast(value AS string)) AS value"),
)
"""


@pytest.fixture
def client(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client, and a working directory with the file that the examples name."""
    (tmp_path / "pipeline.py").write_text(DEFINITION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.get_bootstrap_server())
    for name in (SOURCE, SINK):
        broker.create_topic(name, 1)
    with ottla.client.connect(broker.get_bootstrap_server()) as connected:
        yield connected


def committed(client: Client) -> int:
    partition = TopicPartition(SOURCE, 0)
    try:
        return client.committed(GROUP, [partition]).get(partition, Committed(0)).offset
    except ClientError:
        return 0


@contextmanager
def interrupted_after(client: Client, offset: int) -> Iterator[None]:
    """Interrupts this process when the pipeline has committed this number of records."""
    is_over = threading.Event()

    def watch() -> None:
        while committed(client) < offset:
            if is_over.wait(0.1):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.timeout(600)
def test_the_examples_of_pipelines_run(spark: Any, client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [example for name in ("pipeline run", "pipeline status", "pipeline verify") for example in examples_of(name)]
    assert all(example.needs == "spark" for example in lines)
    for number, example in enumerate(lines, 1):
        words = shlex.split(example.line)[1:]
        if words[1] != "run":
            assert main(words) == 0, (example.line, capsys.readouterr())
            continue
        broker.add_record(SOURCE, f"word {number}")
        if example.is_endless:
            with interrupted_after(client, number):
                assert main(words) == EXIT_INTERRUPTED
        else:
            assert main(words) == 0, (example.line, capsys.readouterr())
        assert committed(client) == number
    assert [record.value for record in broker.records(SINK)] == [b"WORD 1", b"WORD 2"]
