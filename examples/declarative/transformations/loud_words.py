"""A flow from the topic `words` to the topic `loud-words`, as a Spark Declarative Pipeline; needs `pyspark[pipelines]`.

Source and sink name one group, so that the flow is exactly once and `ottla pipeline verify declared-words --sink loud-words` can prove it.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import pipelines
from pyspark.sql import SparkSession

OPTIONS = {"kafka.bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"), "group": "declared-words"}

pipelines.create_sink("loud_words", "ottla", {**OPTIONS, "topic": "loud-words"})


@pipelines.append_flow(target="loud_words")
def shout() -> Any:
    session = SparkSession.active()
    rows = session.readStream.format("ottla").options(**OPTIONS, subscribe="words", startingOffsets="earliest").load()
    return rows.selectExpr("key", "upper(cast(value AS string)) AS value")
