"""A Spark session and a broker that the tests of this folder share. Both are real: a JVM with two task slots, a broker process."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from ottla.spark.session import CHECKPOINT_MANAGER, UNIX_SOCKETS
from ottla.spark.spark_versions import LOCAL_CHECKPOINTS
from ottla.testing.broker import Broker
from tests.spark.kept_connections import close_clients, close_relays
from tests.spark_jobs.cluster import Cluster
from tests.spark_jobs.quick_java import SPARK_JAVA, TEST_SECONDS_MAX, make_archive

ROOT = Path(__file__).resolve().parents[2]
SESSION_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    UNIX_SOCKETS: "true",  # as in sessions of pipelines; `cluster_program.py` has Spark's default
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SPARK_JAVA,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": "0",
    CHECKPOINT_MANAGER: LOCAL_CHECKPOINTS,  # as in sessions of pipelines; `cluster_program.py` has Spark's default
}

STARTED_TOO_SLOWLY = "Python worker failed to connect back"
"""How Spark ends a query whose Python worker has not started within ten seconds, which no setting changes."""
TRIES_MAX = 3


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test of this folder again if a busy machine was too slow for Spark, and for no other reason."""
    if "spark_jobs" not in item.path.parts:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for number in range(TRIES_MAX):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if number == TRIES_MAX - 1 or not any(report.failed and STARTED_TOO_SLOWLY in report.longreprtext for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives the tests enough time to make the archive of Spark's classes, because any test may be the first of a worker."""
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A temporary directory for this run, here and in Spark's processes, so that runs on the same machine do not share files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session")
def java() -> str:
    """The location of Java. Without Java the tests are skipped for developers, and fail in CI."""
    found = shutil.which("java")
    if found is not None:
        make_archive(SESSION_SETTINGS)
        return found
    if os.environ.get("CI"):
        pytest.fail("java is not installed, and in CI it has to be")
    pytest.skip("java is not installed")


@pytest.fixture(scope="session")
def spark(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session in local mode, two tasks at a time."""
    from pyspark.sql import SparkSession

    from ottla.spark.session import workers_path

    # Not by spark.pyspark.python: only spark-submit looks at that.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("ottla-tests")
    warehouse = tmp_path_factory.mktemp("warehouse")
    for name, value in {**SESSION_SETTINGS, "spark.sql.warehouse.dir": str(warehouse)}.items():
        builder = builder.config(name, value)
    with workers_path():  # a worker has ten seconds to start, on a busy machine too
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    del os.environ["PYSPARK_PYTHON"]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker process for this folder."""
    with Broker() as started:
        yield started
        close_clients()  # clients of code that runs in the driver itself, such as `foreachBatch`
        close_relays()


@pytest.fixture(scope="session")
def cluster(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Spark application in a separate process with two executor processes; all of them may be killed."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for a query's checkpoint."""
    return str(tmp_path / "checkpoint")
