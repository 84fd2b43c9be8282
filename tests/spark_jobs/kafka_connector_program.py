"""Runs jobs with `format("kafka")`, in an interpreter that has Spark's own connector and no module of Ottla.

usage: python kafka_connector_program.py BOOTSTRAP FOLDER TIMESTAMP_MS

Reads the topic `trades`, of which some transactions are aborted, in several ways; writes the topics `written` and `keyed`; copies `trades`
to `copied` as a stream, in two runs from one checkpoint. What it has read is written to FOLDER/results.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

ROWS = 500


def main(bootstrap: str, folder: Path, timestamp_ms: str) -> None:
    builder = SparkSession.builder.master("local[2]").appName("kafka-connector")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in {**settings, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    connector = Connector(spark, bootstrap)
    results = {**read_in_many_ways(connector, timestamp_ms), **write_rows(connector), **copy_stream(connector, folder / "checkpoint")}
    (folder / "results.json").write_text(json.dumps(results))
    spark.stop()


class Connector:
    """Readers and writers of Spark's own format, against one broker."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark, self.bootstrap = spark, bootstrap

    def read(self, **options: str) -> DataFrame:
        return self.configured(self.spark.read, options).load()

    def write(self, rows: DataFrame, **options: str) -> None:
        self.configured(rows.write, options).save()

    def configured(self, source_or_sink: Any, options: dict[str, str]) -> Any:
        named = {name.replace("_", "."): value for name, value in options.items()}
        return source_or_sink.format("kafka").option("kafka.bootstrap.servers", self.bootstrap).options(**named)


def listed(rows: DataFrame) -> list[Any]:
    """Returns the rows in the order of the log, as lists."""
    columns = ["partition", "offset", "cast(key as string)", "cast(value as string)"]
    return sorted(list(row) for row in rows.selectExpr(*columns).collect())


def read_in_many_ways(connector: Connector, timestamp_ms: str) -> dict[str, Any]:
    committed = {"kafka_isolation_level": "read_committed"}
    detailed = connector.read(subscribe="trades", includeHeaders="true", **committed)
    fields = ["topic", "partition", "offset", "cast(timestamp as long)", "timestampType", "transform(headers, h -> h.key)"]
    half = json.dumps({"trades": {"0": 2, "1": -2}})
    return {
        "committed": listed(connector.read(subscribe="trades", **committed)),
        "uncommitted": listed(connector.read(subscribe="trades")),
        "split": listed(connector.read(subscribePattern="tra.*", minPartitions="7", **committed)),
        "from": listed(connector.read(assign=json.dumps({"trades": [0, 1]}), startingOffsets=half, **committed)),
        "later": listed(
            connector.read(subscribe="trades", startingTimestamp=timestamp_ms, startingOffsetsByTimestampStrategy="latest", **committed)
        ),
        "details": sorted(list(row) for row in detailed.selectExpr(*fields).collect()),
    }


def write_rows(connector: Connector) -> dict[str, Any]:
    numbers = connector.spark.range(ROWS)
    header = functions.array(functions.struct(functions.lit("source").alias("key"), functions.encode("value", "utf-8").alias("value")))
    rows = numbers.selectExpr("'written' as topic", "cast(id as string) as key", "concat('value ', id) as value").withColumn(
        "headers", header
    )
    connector.write(rows, includeHeaders="true", kafka_compression_type="lz4")
    keyed = numbers.selectExpr("concat('key ', id % 50) as key", "cast(id as string) as value", "if(id % 10 = 0, 2, null) as partition")
    connector.write(keyed, topic="keyed")
    return {"keyed": listed(connector.read(subscribe="keyed"))}


def copy_stream(connector: Connector, checkpoint: Path) -> dict[str, Any]:
    """Copies all records, writes more records, and continues from the checkpoint."""
    batches = []
    for run in range(2):
        if run:
            connector.write(connector.spark.range(100).selectExpr("'trades' as topic", "concat('later ', id) as value"))
        source = connector.configured(
            connector.spark.readStream, {"subscribe": "trades", "startingOffsets": "earliest", "kafka_isolation_level": "read_committed"}
        )
        sink = connector.configured(
            source.load().select("key", "value").writeStream, {"topic": "copied", "checkpointLocation": str(checkpoint)}
        )
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        batches.append(sum(progress["numInputRows"] for progress in query.recentProgress))
    return {"copied_rows": batches, "copied": listed(connector.read(subscribe="copied"))}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
