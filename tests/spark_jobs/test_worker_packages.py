"""If Python workers lack pyarrow, the query stops with a line that names it, and nothing is written. The workers use this interpreter with
another first directory on the path, whose module `pyarrow` raises an error at import. Unlike `Pipeline.run` (`test_session.py`), a session
of the user does not check its workers first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests.spark_jobs.queries import WAIT_S, stock_values, write_numbers
from tests.spark_jobs.quick_java import SPARK_JAVA

PROGRAM = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

bootstrap, source, sink, checkpoint = sys.argv[1:]
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("OFF")
brokers = {"kafka.bootstrap.servers": bootstrap}
reading = {**brokers, "subscribe": source}
streaming = {**reading, "group": "lacking", "startingOffsets": "earliest"}

def read():
    session.read.format("ottla").options(**reading).schema("value BINARY").load().collect()

def write():
    session.range(2).selectExpr("CAST(id AS string) AS value").write.format("ottla").mode("append").options(**brokers, topic=sink).save()

def stream():
    rows = session.readStream.format("ottla").options(**streaming).schema("value BINARY").load()
    writing = {**brokers, "topic": sink, "group": "lacking", "checkpointLocation": checkpoint}
    query = rows.writeStream.format("ottla").options(**writing).trigger(availableNow=True).start()
    query.awaitTermination()

for use in (read, write, stream):
    try:
        use()
        print("FINISHED", use.__name__)
    except PySparkException as error:
        words = [line for line in str(error).splitlines() if "pyarrow" in line and not line.startswith(" ")]
        print("LINE", use.__name__, *words[:1])
session.stop()
"""
PYTHON = """#!/bin/sh
case "$*" in *{lacking}*) PYTHONPATH={directory}:$PYTHONPATH; export PYTHONPATH ;; esac
exec {python} "$@"
"""
REFUSAL = "raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')\n"
OURS = "MissingRequirementError: pyarrow is missing in"
SPARKS = "ModuleNotFoundError: No module named 'pyarrow'"


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("lacking", "line"),
    [
        pytest.param("pyspark", OURS, id="all workers"),
        pytest.param("pyspark.worker", SPARKS, id="workers of executors", marks=pytest.mark.night),
    ],
)
def test_a_worker_without_pyarrow_is_named_and_nothing_is_written(broker: Broker, tmp_path: Path, lacking: str, line: str) -> None:
    """If only the executors lack pyarrow, Spark's own code needs it first, and its error names it."""
    kind = "all" if line == OURS else "some"
    source, sink = broker.create_topic(f"in-lacking-{kind}"), broker.create_topic(f"out-lacking-{kind}")
    write_numbers(broker, source, range(10))
    (tmp_path / "pyarrow.py").write_text(REFUSAL)
    python = tmp_path / "python"
    python.write_text(PYTHON.format(lacking=lacking, directory=tmp_path, python=sys.executable))
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, broker.direct_server, source, sink, str(tmp_path / "checkpoint")],
        env={**os.environ, "PYSPARK_PYTHON": str(python), "JDK_JAVA_OPTIONS": SPARK_JAVA},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )
    found = [one for one in done.stdout.splitlines() if one.startswith(("LINE", "FINISHED"))]
    assert [one.split()[:2] for one in found] == [["LINE", use] for use in ("read", "write", "stream")], done.stdout + done.stderr
    assert all(line in one for one in found), found
    assert stock_values(broker, sink) == []
