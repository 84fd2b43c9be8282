"""Pipelines on a standalone cluster whose executors do not share files with the driver: tasks stage their output, or send it in messages.

The cluster takes a minute of processor time to start. Each run of the tests has both ways of output on executors of this host
(`test_sink.py`), and attempts of tasks that are not committed (`tests/spark/test_staged_attach.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests.spark_jobs.cluster import Cluster
from tests.spark_jobs.copied import Copy
from tests.spark_jobs.quick_java import SPARK_JAVA
from tools.spark_standalone import Standalone

POLL_S = 0.2
ROWS, BATCHES = 900, 3
KILL_AT = 0.3
"""The share of the source that is committed when a worker is killed."""

TEMPORARY = "temporary"
pytestmark = [pytest.mark.night, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def standalone(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers."""
    made = Standalone(tmp_path_factory.mktemp("standalone"), variables={**os.environ, "JDK_JAVA_OPTIONS": SPARK_JAVA})
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def driver(standalone: Standalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A driver on that cluster. Its temporary directory has a path that is another directory for each executor."""
    directory = tmp_path_factory.mktemp("driver")
    (directory / TEMPORARY).mkdir()
    made = Cluster(directory, standalone.url, temporary=f"/proc/self/cwd/{TEMPORARY}")
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.mark.parametrize("way", ["staged", "auto"])
def test_output_from_other_hosts_is_committed_once_though_a_worker_is_killed(
    standalone: Standalone, driver: Cluster, broker: Broker, tmp_path: Path, way: str
) -> None:
    """Output from other hosts is committed once, although a worker is killed. A small output, as here, is sent in messages by default."""
    copy = Copy(broker.direct_server, tmp_path, rows=ROWS, batches=BATCHES)
    driver.submit(copy.job(taskOutput=way))
    answer = None
    has_killed = False
    while answer is None:
        answer = driver.answer(POLL_S)
        if not has_killed and copy.progress() >= KILL_AT:
            standalone.lose_worker()
            has_killed = True
    assert answer["is_done"], f"{answer}\n{driver.log_tail()}"
    assert has_killed
    copy.check()
    spools = list((driver.directory / TEMPORARY).iterdir())
    assert len(spools) == 1, "the driver offered a directory"
    assert list(standalone.directory.glob(f"work/**/{TEMPORARY}")) == [], "which is another one for the executors"
