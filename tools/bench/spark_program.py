"""Runs Spark jobs that read from and write to a broker, one after another in one session. `make bench-spark` starts it and sends it the
jobs.

usage: python spark_program.py FORMAT [MASTER SETTINGS]

It needs only pyspark and the data source FORMAT (`ottla` or `kafka`), so that it runs in the interpreter of either. Without MASTER it runs
in local mode with two task slots. SETTINGS are more Spark settings, as JSON. Each line of the input is a job as JSON. Its outcome, with the
seconds that the job took, is printed after `RESULT`.
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
    "spark.sql.execution.arrow.maxBytesPerBatch": "2m",  # likewise
    "spark.sql.streaming.noDataProgressEventInterval": "200",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
Options = dict[str, str]
IDLE_SECONDS = 2.0


class Jobs:
    """The jobs: each public method is one, and a line of the input names it. Kept rows stay in memory between jobs, with the columns key
    and value.
    """

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
        """Reads kept rows and drops them, so that the next job that writes them does not pay for their first use."""
        return self._timed(lambda: self.rows[name].write.format("noop").mode("overwrite").save())

    def read(self, source: Options) -> dict[str, Any]:
        """Reads a topic, and drops the rows."""
        return self._timed(lambda: self._reader(source).write.format("noop").mode("overwrite").save())

    def write(self, name: str, sink: Options) -> dict[str, Any]:
        """Writes kept rows."""
        return self._timed(lambda: self.rows[name].write.format(self.format).options(**sink).mode("append").save())

    def read_nothing(self, **options: Any) -> dict[str, Any]:
        """Reads rows of the source `nothing`, and drops them: the time that Spark takes for any source in Python."""
        self._know_nothing()
        rows = self.spark.read.format("nothing").options(**options).load()
        return self._timed(lambda: rows.write.format("noop").mode("overwrite").save())

    def write_nothing(self, name: str) -> dict[str, Any]:
        """Writes kept rows to the sink `nothing`, which drops them: the time that Spark takes for any sink in Python."""
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
        """Copies a topic as a stream to another one."""
        return self._whole_stream(lambda checkpoint: self._stream(source, sink, checkpoint))

    def stream_to_table(self, source: Options, table: Options) -> dict[str, Any]:
        """Copies a topic as a stream into a table of Ottla's sink."""
        from ottla.spark.tables.start import prepare_start, table_writer
        from ottla.spark.tables.table import Table

        made = Table(table["location"], format=table["format"], catalog=json.loads(table["catalog"]))
        options = {name: source[name] for name in ("kafka.bootstrap.servers", "group")}
        prepare_start(self.spark, made, source["group"], options)
        rows = self._reader_of_stream(source)
        return self._whole_stream(lambda checkpoint: table_writer(rows, made, options).option("checkpointLocation", checkpoint))

    def _whole_stream(self, writer: Callable[[str], Any]) -> dict[str, Any]:
        """Runs a stream from its source's start to its present end, given its writer for a checkpoint. `seconds` is the time of the
        batches; `start_seconds` is the rest: start and stop of the query.
        """
        checkpoint = tempfile.mkdtemp(prefix="checkpoint-")
        started = time.perf_counter()
        query = writer(checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        total = time.perf_counter() - started
        batches = [progress["durationMs"] for progress in query.recentProgress]
        seconds = sum(duration["triggerExecution"] for duration in batches if "addBatch" in duration) / 1000
        shutil.rmtree(checkpoint)
        return {"seconds": seconds, "start_seconds": total - seconds}

    def start(self, source: Options, sink: Options) -> dict[str, Any]:
        """Starts a stream that copies the records of a topic."""
        self.checkpoint = tempfile.mkdtemp(prefix="checkpoint-")
        self.query = self._stream(source, sink, self.checkpoint).start()
        self.query.processAllAvailable()
        return {}

    def wait(self) -> dict[str, Any]:
        """Waits until the stream has copied all records that the topic has."""
        self.query.processAllAvailable()
        return {}

    def stop(self) -> dict[str, Any]:
        """Leaves the stream idle for a while, and stops it. Returns the rows and the duration of each trigger."""
        time.sleep(IDLE_SECONDS)
        progress = [{"rows": one["numInputRows"], "ms": one["durationMs"].get("triggerExecution", 0)} for one in self.query.recentProgress]
        self.query.stop()
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return {"triggers": progress}

    def _reader(self, source: Options) -> Any:
        return self.spark.read.format(self.format).options(**source).load()

    def _stream(self, source: Options, sink: Options, checkpoint: str) -> Any:
        return self._reader_of_stream(source).writeStream.format(self.format).options(**sink).option("checkpointLocation", checkpoint)

    def _reader_of_stream(self, source: Options) -> Any:
        return self.spark.readStream.format(self.format).options(**source).load().select("key", "value")

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
