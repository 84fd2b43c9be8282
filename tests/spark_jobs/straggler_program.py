"""A copy of a topic in local-cluster mode, whose tasks fail and lose their executor on the way. Run by `test_stragglers.py`.

Arguments: bootstrap, source, sink, a directory for the checkpoint, one for notes: each attempt of a task leaves a file there that is named
after batch, task and attempt. Batches after the first read something. In batch 1 a task fails at its first attempt. In batch 2 a task kills
its executor, so that both stages run again; the other task goes on all the while, until a second attempt of it runs beside it (Spark gives
both the number 0). In batch 3 a task kills its Python process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAIT_S_MAX = 60.0


def faulty(notes: Path) -> Any:
    """A function for mapInArrow that passes all rows on, after the fault that is planned for the task, if any."""

    def first_time(name: str) -> bool:
        try:
            (notes / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def wait_for(pattern: str, count: int = 1) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while len(list(notes.glob(pattern))) < count and time.monotonic() < deadline:
            time.sleep(0.05)

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        place = f"{task.getLocalProperty('streaming.sql.batchId')}-{task.partitionId()}"
        (notes / f"attempt-{place}-{task.taskAttemptId()}").touch()
        rows = list(batches)
        yield from rows[:1]
        if place == "1-0" and first_time("failed"):
            raise RuntimeError("a planted failure")
        if place == "2-0":
            wait_for("attempt-2-1-*")
            if first_time("killed"):
                os.kill(executor_process(), signal.SIGKILL)
        if place == "2-1":
            wait_for("attempt-2-1-*", 2)
        if place == "3-0" and first_time("worker-killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield from rows[1:]
        (notes / f"done-{place}-{task.taskAttemptId()}").touch()

    return pass_on


def executor_process() -> int:
    """The Java process above this Python worker: the parent of the daemon that forked it."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def main(bootstrap: str, source: str, sink: str, checkpoint: str, notes: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    given = {"kafka.bootstrap.servers": bootstrap, "group": f"g-{sink}"}
    reading = {**given, "subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000"}
    writing = {**given, "topic": sink, "checkpointLocation": checkpoint}
    rows = spark.readStream.format("ottla").options(**reading).load().select("key", "value").repartition(2, "key")
    passed = rows.mapInArrow(faulty(Path(notes)), "key binary, value binary")
    passed.writeStream.format("ottla").options(**writing).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
