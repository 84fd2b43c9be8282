"""With every supported version of Spark (`make spark-versions`) a pipeline limits its batches, from the first one on and after a restart.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from ottla.spark import Pipeline
from ottla.testing.broker import Broker
from tests.spark_jobs.queries import lag, stock_values, write_numbers

MOST = 8


def test_batches_are_bounded_and_the_query_stops_by_itself(spark: Any, broker: Broker, tmp_path: Path) -> None:
    name = uuid.uuid4().hex[:12]
    source, sink = broker.create_topic(f"in-{name}", 2), broker.create_topic(f"out-{name}", 1)
    pipeline = Pipeline(
        group=f"group-{name}",
        source=source,
        sink=sink,
        transform=lambda rows: rows.selectExpr("key", "value"),
        bootstrap=broker.get_bootstrap_server(),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger="available-now",
        source_options={"maxOffsetsPerTrigger": str(MOST)},
    )
    for first in (0, 20):
        write_numbers(broker, source, range(first, first + 20))
        query = pipeline.start(spark)
        assert query.awaitTermination(120)
        assert 0 < max(one["numInputRows"] for one in query.recentProgress) <= MOST
        assert sorted(stock_values(broker, sink)) == list(range(first + 20))
        assert lag(broker, pipeline.group, source) == 0
