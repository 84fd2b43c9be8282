"""Runs of a pipeline in which driver, executors, Python workers and the broker are killed with -9 at random: the output is right each time.

`OTTLA_SPARK_KILL_RUNS` is the number of runs, `OTTLA_SPARK_KILL_SEED` the seed of the first. `OTTLA_SPARK_KILL_BOOTSTRAP` names another
Kafka-compatible broker to run against. That broker is killed only if `OTTLA_SPARK_KILL_COMMAND` is a command that kills it and starts it
again.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.spark_jobs.cluster import Cluster
from tests.spark_jobs.copied import Copy, Windows

RUNS = int(os.environ.get("OTTLA_SPARK_KILL_RUNS", "2"))
SEED = int(os.environ.get("OTTLA_SPARK_KILL_SEED", "0"))
BOOTSTRAP = os.environ.get("OTTLA_SPARK_KILL_BOOTSTRAP")
COMMAND = os.environ.get("OTTLA_SPARK_KILL_COMMAND")
KINDS = ["driver", "executor", "worker", *([] if BOOTSTRAP and not COMMAND else ["broker"])]
ROWS, BATCHES = 1_000, 6
RUN_S = 300.0
STARTS_MAX = 20
POLL_S = 0.2
LATEST_KILL = 0.75
"""The share of the source after which no kill is begun any more."""

DELAY_S_MAX = 0.8
"""Between the progress that a kill waits for and the kill: about the time of a batch, so that each of its steps is met."""

CHECKPOINT_LOST = 0.25
BROKER_SETTINGS = ["offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | None]:
    """A broker for this module; None if another broker is named."""
    if BOOTSTRAP:
        yield None
        return
    started = BrokerProcess(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS).start()
    yield started
    started.stop()


def kinds_of(run: int, chooser: random.Random) -> list[str]:
    """Chooses two or three kills for a run; two consecutive runs have all kinds."""
    order = random.Random(run // 2).sample(KINDS, len(KINDS))
    half = len(order) // 2
    chosen = order[:half] if run % 2 == 0 else order[half:]
    return chosen + chooser.choices(KINDS, k=chooser.randrange(2))


@pytest.mark.timeout(RUN_S * 2)
@pytest.mark.parametrize("run", range(SEED, SEED + RUNS))
def test_the_output_is_right_after_random_kills(cluster: Cluster, broker: BrokerProcess | None, tmp_path: Path, run: int) -> None:
    chooser = random.Random(run)
    bootstrap = BOOTSTRAP or (broker.address if broker is not None else "")
    pipeline = (Windows if run % 2 else Copy)(bootstrap, tmp_path, rows=ROWS, batches=BATCHES)
    kinds = kinds_of(run, chooser)
    moments = sorted(chooser.uniform(0, LATEST_KILL) for _ in kinds)
    deadline = time.monotonic() + RUN_S
    events: list[str] = []
    cluster.submit(pipeline.job(starts_max=STARTS_MAX))
    is_done = False
    while not is_done:
        assert time.monotonic() < deadline, f"run {run}: not done, {events}\n{cluster.log_tail()}"
        answer = cluster.answer(POLL_S)
        if answer is not None:
            events += answer["failures"]
            assert answer["is_done"], f"run {run}: {events}"
            is_done = not pipeline.has_more()
            if not is_done:
                cluster.submit(pipeline.job(starts_max=STARTS_MAX))
        elif moments and pipeline.progress() >= moments[0]:
            time.sleep(chooser.uniform(0, DELAY_S_MAX))
            moments.pop(0)
            kind = kinds.pop(0)
            is_killed = kill(kind, cluster, broker, chooser, pipeline)
            events.append(f"killed: {kind}" if is_killed else f"no {kind} to kill")
    print(f"run {run}, {pipeline.kind}: {events}")
    pipeline.check()


def kill(kind: str, cluster: Cluster, broker: BrokerProcess | None, chooser: random.Random, pipeline: Copy) -> bool:
    """Kills a process with -9, if it exists. The broker and the driver are started again here; Spark restarts the others itself."""
    if kind == "broker":
        if broker is not None:
            broker.crash()
        else:
            assert COMMAND is not None
            subprocess.run(COMMAND, shell=True, check=True)
        return True
    is_killed = cluster.kill(kind, chooser)
    if kind == "driver":
        if chooser.random() < CHECKPOINT_LOST:
            pipeline.forget_checkpoint()
        cluster.start()
        cluster.submit(pipeline.job(starts_max=STARTS_MAX))
    return is_killed
