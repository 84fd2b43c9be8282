"""A pipeline into a table while driver, executors, Python workers and the broker are killed with -9: nothing is lost, nothing is doubled.

Two kills in a run of the tests. With `OTTLA_SPARK_KILL_RUNS` (`make night`) half as many runs of five kills each, the first with the seed
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
from tests.spark_jobs.test_kills import BROKER_SETTINGS, DELAY_S_MAX, LATEST_KILL, POLL_S, RUNS, SEED, STARTS_MAX, kill

IS_LONG = "OTTLA_SPARK_KILL_RUNS" in os.environ
KINDS = ["driver", "worker", "broker", "executor", "driver"] if IS_LONG else ["driver", "broker"]
ROWS, BATCHES = (2_000, 10) if IS_LONG else (600, 4)
RUN_S = 900.0
"""Each kill needs a new start of Spark or of a part of it, on a busy machine."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS).start()
    yield started
    started.stop()


@pytest.mark.timeout(RUN_S + 300)
@pytest.mark.parametrize("run", range(SEED, SEED + max(1, RUNS // 2)))
def test_a_table_has_each_row_once_after_kills(cluster: Cluster, broker: BrokerProcess, tmp_path: Path, run: int) -> None:
    chooser = random.Random(run)
    copy = TableCopy(broker.address, tmp_path, rows=ROWS, batches=BATCHES)
    kinds = chooser.sample(KINDS, len(KINDS))
    moments = sorted(chooser.uniform(0, LATEST_KILL) for _ in kinds)
    deadline, events = time.monotonic() + RUN_S, []
    cluster.submit(copy.job(starts_max=STARTS_MAX))
    while (answer := cluster.answer(POLL_S)) is None:
        assert time.monotonic() < deadline, f"run {run}: not done, {events}\n{cluster.log_tail()}"
        if moments and copy.progress() >= moments[0]:
            time.sleep(chooser.uniform(0, DELAY_S_MAX))
            moments.pop(0)
            kind = kinds.pop(0)
            events.append(f"killed: {kind}" if kill(kind, cluster, broker, chooser, copy) else f"no {kind} to kill")
    assert answer["is_done"], (answer, events)
    print(f"run {run}: {events}, {answer['failures']}")
    copy.check()
