"""A Spark application in a separate process, with executors as processes: `python -m tests.spark_jobs.cluster_program MASTER DIRECTORY`.

Reads jobs from its input, one JSON line each, runs them one after another and answers each with a line of JSON. A job is a streaming query.
One kind copies a source to a sink through a shuffle and a Python function; each row gets the id of the task attempt that made it, so that
two executions of a batch never have equal output. Another kind does the same, with a table as the sink. The third counts rows in windows,
which a watermark closes: its output comes in batches without input, too. A query that fails is started again, as a supervisor would.

`fault` makes tasks of the query fail in a certain way, the first time that they have rows. Files in a directory of markers show which tasks
had the fault, and which attempts had rows in which batch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

from ottla.spark import Table
from ottla.spark.session import WORKER_STARTUP, register_source, workers_path
from ottla.spark.tables.start import prepare_start, table_writer

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join([WORKER_STARTUP, str(Path(__file__).resolve().parents[2])]),
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.maxNumFailures": "1000",
    "spark.task.maxFailures": "8",
}
READY = "READY"
FAULTY = {"fails": (0, 1), "loses its worker": (0,), "loses its executor": (0, 1)}
"""The partitions that have the fault. (Speculation cannot be shown here: Spark runs no second attempt on the host of the first.)

An executor is lost with the shuffle files of the stage before, so that both stages are retried. One task alone loses it, the other goes on
all the while until a second attempt of itself runs beside it, which Spark gives the same number.
"""

WAIT_S = 60.0

WINDOW_S = 50
WATERMARK_S = 300
"""In the copied numbers, taken for seconds. The watermark is far behind, since partitions are not read in step."""


class Job(TypedDict):
    """A query: where it reads and writes (`sink` is a topic, or a `Table` as JSON), how many times it may be started again, and the fault
    of its tasks."""

    kind: str
    bootstrap: str
    source: str
    sink: str
    group: str
    checkpoint: str
    offsets_a_batch: int
    starts_max: int
    fault: str
    markers: str
    sink_options: dict[str, str]


class Answer(TypedDict):
    """The result of a job: the first lines of its failures, and whether it read everything."""

    is_done: bool
    failures: list[str]


def attempt_stamper(fault: str, markers: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for `mapInArrow` that appends the task attempt to each value, and causes the fault."""

    def claim(name: str) -> bool:
        """Whether this is the first call with the name, in any process."""
        try:
            os.close(os.open(os.path.join(markers, name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def executor() -> int:
        """Returns the process id of this worker's JVM: the parent of the daemon that forked it."""
        with open(f"/proc/{os.getppid()}/stat") as file:
            return int(file.read().rpartition(") ")[2].split()[1])

    def wait_for(prefix: str, count: int) -> None:
        """Waits until this number of attempts of a task have had rows."""
        deadline = time.monotonic() + WAIT_S
        while sum(name.startswith(prefix) for name in os.listdir(markers)) < count and time.monotonic() < deadline:
            time.sleep(0.05)

    def fail(batch: str, partition: int) -> None:
        """Causes the fault of this task."""
        if fault == "fails":
            raise RuntimeError("this task fails once, after all of its rows")
        if fault == "loses its worker":
            os.kill(os.getpid(), 9)
        wait_for(f"ran-{batch}-1-", 1 if partition == 0 else 2)
        if partition == 0:
            os.kill(executor(), 9)
            os._exit(1)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyspark import TaskContext

        task = TaskContext.get()
        attempt = f"/{task.taskAttemptId()}".encode()
        seen = 0
        for batch in batches:
            seen += batch.num_rows
            values = pc.binary_join_element_wise(batch.column("value"), pa.scalar(attempt), b"")
            yield pa.RecordBatch.from_arrays([batch.column("key"), values], names=["key", "value"])
        if not fault or not seen:
            return
        batch_id = task.getLocalProperty("streaming.sql.batchId")
        claim(f"ran-{batch_id}-{task.partitionId()}-{task.taskAttemptId()}")
        if task.partitionId() in FAULTY[fault] and claim(f"{fault}-{task.partitionId()}"):
            fail(batch_id, task.partitionId())

    return work


def windows(rows: Any) -> Any:
    """Counts the numbers of each window: `START/COUNT`."""
    from pyspark.sql.functions import window

    numbers = rows.selectExpr("timestamp_seconds(CAST(CAST(value AS string) AS bigint)) AS at")
    counted = numbers.withWatermark("at", f"{WATERMARK_S} seconds").groupBy(window("at", f"{WINDOW_S} seconds")).count()
    start = "CAST(unix_seconds(window.start) AS string)"
    return counted.selectExpr(f"{start} AS key", f"concat({start}, '/', CAST(count AS string)) AS value")


def start(session: Any, job: Job) -> Any:
    """Starts the query of a job."""
    source = {
        "kafka.bootstrap.servers": job["bootstrap"],
        "subscribe": job["source"],
        "group": job["group"],
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(job["offsets_a_batch"]),
    }
    sink = {
        "kafka.bootstrap.servers": job["bootstrap"],
        "topic": job["sink"],
        "group": job["group"],
        "checkpointLocation": job["checkpoint"],
        **job["sink_options"],
    }
    table = Table.from_json(job["sink"]) if job["kind"] == "table" else None
    if table is not None:
        del sink["topic"]
        prepare_start(session, table, job["group"], sink)
    rows = session.readStream.format("ottla").options(**source).load().select("key", "value")
    if job["kind"] == "windows":
        rows = windows(rows)
    else:
        rows = rows.repartition(3).mapInArrow(attempt_stamper(job["fault"], job["markers"]), "key binary, value binary")
    if table is not None:
        rows = rows.selectExpr("cast(value AS string) AS value", "cast(cast(key AS string) AS int) % 3 AS part")
        return table_writer(rows, table, sink).options(checkpointLocation=job["checkpoint"]).trigger(availableNow=True).start()
    return rows.writeStream.format("ottla").options(**sink).trigger(availableNow=True).start()


def run(session: Any, job: Job) -> Answer:
    """Runs the query until it has read everything, and starts it again after failures."""
    failures: list[str] = []
    while len(failures) < job["starts_max"]:
        try:
            query = start(session, job)
            query.awaitTermination()
            return Answer(is_done=True, failures=failures)
        except Exception as error:
            failures.append(first_line(error))
            time.sleep(0.2)
    return Answer(is_done=False, failures=failures)


def first_line(error: Exception) -> str:
    """Returns the line of an error that names its cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("ottla.spark.errors.")]
    return (named or lines or [type(error).__name__])[0][:500]


def main(arguments: list[str]) -> None:
    from pyspark.sql import SparkSession

    master, directory = arguments
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("ottla-cluster")
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": f"{directory}/warehouse", "spark.local.dir": f"{directory}/local"}.items():
        builder = builder.config(name, value)
    if master.startswith("local-cluster"):
        import pyspark

        os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    with workers_path():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register_source(session)  # as in sessions of pipelines: the worker with which Spark searches for sources may be killed
    print(READY, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(session, json.loads(line))), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
