"""A pipeline writes a table while driver, executors, Python workers and the broker are killed with -9: no row is lost or duplicated.

A process is killed when the table's directory has a new file: a data file, which its task still writes or has just written, or a file of
the log, after which the driver commits the group's offsets and Spark's own commit.

In a normal run of the tests the kinds of kills are divided among the formats, and the driver has no executors, because it then starts in
half the time. The driver is killed only in `make night`; `test_kills.py` kills the driver of another pipeline. With `OTTLA_SPARK_KILL_RUNS`
(`make night`) each format has a third as many runs, of five kills each and with executors. The first run has the seed
`OTTLA_SPARK_KILL_SEED`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.spark_jobs.cluster import Cluster
from tests.spark_jobs.copied import TableCopy
from tests.spark_jobs.test_kills import BROKER_SETTINGS, RUNS, SEED, STARTS_MAX, kill

DATA = "**/part-*.parquet"
LOGS = {"delta": "_delta_log/*.json", "iceberg": "metadata/*.metadata.json"}
"""Patterns of the files that begin and end the writing of a batch, below the table's directory."""

IS_LONG = "OTTLA_SPARK_KILL_RUNS" in os.environ
NIGHT = ["driver", "worker", "broker", "executor", "driver"]
KINDS = {"delta": NIGHT, "iceberg": NIGHT} if IS_LONG else {"delta": ["driver"], "iceberg": ["broker", "worker"]}
MASTER = "local-cluster[2,1,600]" if IS_LONG else "local[2]"
ROWS, BATCHES = (2_000, 10) if IS_LONG else (300, 3)
RUN_S = 900.0
"""Each kill needs a new start of Spark or of a part of it, on a busy machine."""
POLL_S = 0.02


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS).start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def driver(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), MASTER)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.mark.timeout(RUN_S + 300)
@pytest.mark.parametrize("run", range(SEED, SEED + max(1, RUNS // 3)))
@pytest.mark.parametrize("table_format", [pytest.param("delta", marks=pytest.mark.night), "iceberg"])
def test_a_table_has_each_row_once_after_kills(
    driver: Cluster, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, run: int
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own planner is another package
    chooser = random.Random(f"{run} {table_format}")
    copy = TableCopy(broker.address, tmp_path, table_format, rows=ROWS, batches=BATCHES)
    kinds = chooser.sample(KINDS[table_format], len(KINDS[table_format]))
    deadline, events = time.monotonic() + RUN_S, []
    driver.submit(copy.job(starts_max=STARTS_MAX))
    steps = [DATA, LOGS[table_format]]
    step = chooser.choice(steps)
    known = copy.steps(step)
    while (answer := driver.answer(POLL_S)) is None:
        assert time.monotonic() < deadline, f"run {run}: not done, {events}\n{driver.log_tail()}"
        if kinds and copy.steps(step) - known:
            kind = kinds.pop(0)
            events.append(f"{step}: {'killed' if kill(kind, driver, broker, chooser, copy) else 'there was no'} {kind}")
            step = chooser.choice(steps)
            known = copy.steps(step)
    assert answer["is_done"], (answer, events)
    print(f"run {run}: {events}, {answer['failures']}")
    assert not kinds, events
    copy.check()
