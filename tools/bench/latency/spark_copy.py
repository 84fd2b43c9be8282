"""Copies a topic to another as a Spark stream until its input ends.

usage: python spark_copy.py FORMAT ADDRESS SOURCE SINK DIRECTORY

With the format `ottla` it runs a `Pipeline` with the settings of `Pipeline.run`. With `kafka` it runs Spark's own connector, in the
interpreter of `tools/spark_connector.py`. The checkpoint is in DIRECTORY. The stream runs one batch after another, without a pause.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

MASTER = "local[2]"
SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}


def run_ottla(address: str, source: str, sink: str, directory: str) -> None:
    from ottla.spark import Pipeline

    def transform(rows: Any) -> Any:
        return rows.select("key", "value")

    pipeline = Pipeline(
        group="latency",
        source=source,
        sink=sink,
        transform=transform,
        bootstrap=address,
        checkpoint=directory,
        starting_offsets="earliest",
        settings={**SETTINGS, "spark.master": MASTER},
    )
    pipeline.run()


def run_connector(address: str, source: str, sink: str, directory: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(MASTER)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reading = {
        "kafka.bootstrap.servers": address,
        "subscribe": source,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    writing = {"kafka.bootstrap.servers": address, "topic": sink, "checkpointLocation": directory}
    rows = spark.readStream.format("kafka").options(**reading).load().select("key", "value")
    rows.writeStream.format("kafka").options(**writing).start().awaitTermination()


def end_with_the_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    threading.Thread(target=end_with_the_input, daemon=True).start()
    run = run_ottla if sys.argv[1] == "ottla" else run_connector
    run(*sys.argv[2:])


if __name__ == "__main__":
    main()
