"""A client of Spark Connect, which has no Java of its own: reads a topic, copies it, and runs the docs' example. Run by `test_connect.py`.

Arguments: the server's address, the brokers, source, sink, the text of the example. Writes what it read to its output, as JSON.
"""

from __future__ import annotations

import json
import sys


def main(server: str, bootstrap: str, source: str, sink: str, example: str) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(server).getOrCreate()
    given = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.read.format("ottla").options(**given, subscribe=source).load()
    values = sorted(int(row.value) for row in rows.selectExpr("cast(value AS string) AS value").collect())
    rows.select("value").write.format("ottla").mode("append").options(**given, topic=sink).save()
    exec(example, {"__name__": "__main__"})
    try:
        spark.read.format("ottla").options(**given, subscribe="no-such-topic").load().collect()
        message = ""
    except PySparkException as error:
        message = str(error)
    print(json.dumps({"client": type(spark).__module__, "values": values, "message": message}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
