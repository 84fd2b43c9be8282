"""A flow from the topic `words` to the topic `loud-words`, as a Spark Declarative Pipeline; needs `pyspark[pipelines]`.

Source and sink name one group, so that the flow is exactly once and `ottla pipeline verify declared-words --sink loud-words` can prove it.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import pipelines
from pyspark.sql import SparkSession

BROKERS = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
OPTIONS = {"kafka.bootstrap.servers": BROKERS, "group": "declared-words"}
SOURCE = {**OPTIONS, "subscribe": "words", "startingOffsets": "earliest"}

pipelines.create_sink("loud_words", "ottla", {**OPTIONS, "topic": "loud-words"})


@pipelines.append_flow(target="loud_words")
def shout() -> Any:
    rows = SparkSession.active().readStream.format("ottla").options(**SOURCE).load()
    return rows.selectExpr("key", "upper(cast(value AS string)) AS value")
