"""Runs Spark jobs that read from and write to a broker, one after another in one session, as `make bench-spark` asks for them.

usage: python spark_program.py FORMAT [MASTER SETTINGS]

Needs pyspark and the data source FORMAT (`ottla` or `kafka`), nothing else, so that it runs in an interpreter of either. MASTER is two
task slots here unless it names a cluster; SETTINGS are more of Spark's settings, as JSON. Each line of the input is a job as JSON; its
outcome is printed behind `RESULT`, with the seconds that the job took.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.python.unix.domain.socket.enabled": "true",  # as `ottla.spark.session` sets it; Spark's connector has no use for it
    "spark.sql.streaming.noDataProgressEventInterval": "200",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
Options = dict[str, str]
IDLE_SECONDS = 2.0


class Jobs:
    """The jobs, by the names that they have on the wire. `rows` are kept in memory between jobs, as rows of key and value."""

    def __init__(self, spark: SparkSession, source_format: str) -> None:
        self.spark = spark
        self.format = source_format
        self.rows: dict[str, Any] = {}
        self.query: Any = None

    def keep(self, name: str, source: Options) -> dict[str, Any]:
        """Reads a topic into memory."""
        rows = self._reader(source).select("key", "value").repartition(2).persist(StorageLevel.MEMORY_ONLY)
        self.rows[name] = rows
        return {"rows": rows.count()}

    def forget(self, name: str) -> dict[str, Any]:
        self.rows.pop(name).unpersist(True)
        return {}

    def drop(self, name: str) -> dict[str, Any]:
        """Takes kept rows and drops them: what making the rows costs the jobs that write them."""
        return self._timed(lambda: self.rows[name].write.format("noop").mode("overwrite").save())

    def read(self, source: Options) -> dict[str, Any]:
        """Reads a topic, and drops the rows."""
        return self._timed(lambda: self._reader(source).write.format("noop").mode("overwrite").save())

    def write(self, name: str, sink: Options) -> dict[str, Any]:
        """Writes kept rows."""
        return self._timed(lambda: self.rows[name].write.format(self.format).options(**sink).mode("append").save())

    def read_nothing(self, **options: Any) -> dict[str, Any]:
        """Reads rows that are made from nothing, and drops them: what Spark takes for any source in Python."""
        self._know_nothing()
        rows = self.spark.read.format("nothing").options(**options).load()
        return self._timed(lambda: rows.write.format("noop").mode("overwrite").save())

    def write_nothing(self, name: str) -> dict[str, Any]:
        """Gives kept rows to a sink that drops them: what Spark takes for any sink in Python."""
        self._know_nothing()
        return self._timed(lambda: self.rows[name].write.format("nothing").mode("append").save())

    def _know_nothing(self) -> None:
        from tools.bench.spark_nothing import Nothing

        self.spark.dataSource.register(Nothing)

    def copy(self, source: Options, sink: Options) -> dict[str, Any]:
        """Copies a topic in one batch job."""
        rows = self._reader(source).select("key", "value")
        return self._timed(lambda: rows.write.format(self.format).options(**sink).mode("append").save())

    def stream(self, source: Options, sink: Options) -> dict[str, Any]:
        """Copies a topic as a stream, from its start to what is there, and stops.

        `seconds` is the time of its batches; `start_seconds` the rest, which is starting and stopping the query.
        """
        checkpoint = tempfile.mkdtemp(prefix="checkpoint-")
        started = time.perf_counter()
        query = self._stream(source, sink, checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        total = time.perf_counter() - started
        batches = [progress["durationMs"] for progress in query.recentProgress]
        seconds = sum(duration["triggerExecution"] for duration in batches if "addBatch" in duration) / 1000
        shutil.rmtree(checkpoint)
        return {"seconds": seconds, "start_seconds": total - seconds}

    def start(self, source: Options, sink: Options) -> dict[str, Any]:
        """Starts a stream that copies new records."""
        self.checkpoint = tempfile.mkdtemp(prefix="checkpoint-")
        self.query = self._stream(source, sink, self.checkpoint).start()
        self.query.processAllAvailable()
        return {}

    def wait(self) -> dict[str, Any]:
        """Waits until the stream has copied what is there."""
        self.query.processAllAvailable()
        return {}

    def stop(self) -> dict[str, Any]:
        """Lets the stream be idle for a while and stops it; how long each trigger took, by the rows that it had."""
        time.sleep(IDLE_SECONDS)
        progress = [{"rows": one["numInputRows"], "ms": one["durationMs"].get("triggerExecution", 0)} for one in self.query.recentProgress]
        self.query.stop()
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return {"triggers": progress}

    def _reader(self, source: Options) -> Any:
        return self.spark.read.format(self.format).options(**source).load()

    def _stream(self, source: Options, sink: Options, checkpoint: str) -> Any:
        rows = self.spark.readStream.format(self.format).options(**source).load().select("key", "value")
        return rows.writeStream.format(self.format).options(**sink).option("checkpointLocation", checkpoint)

    def _timed(self, run: Callable[[], None]) -> dict[str, Any]:
        started = time.perf_counter()
        run()
        return {"seconds": time.perf_counter() - started}


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    master, settings = sys.argv[2:] or ("local[2]", "{}")
    builder = SparkSession.builder.master(master).appName("bench")
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": tempfile.gettempdir(), **json.loads(settings)}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jobs = Jobs(spark, sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        print("RESULT", json.dumps(getattr(jobs, job.pop("job"))(**job)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
