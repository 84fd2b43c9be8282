"""Other triggers and output modes than the usual ones work, or are refused before anything is written.

`availableNow` is in nearly every test of this folder, a trigger by time in `test_faults.py`, the mode `complete` in `test_stateful.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing.broker import Broker
from tests.spark_jobs.queries import failure, lag, numbers_of_batches, run, stock_values, stream, stream_writer, write_numbers


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> tuple[str, str]:
    name = f"{abs(hash(request.node.name)):x}"
    return broker.create_topic(f"in-{name}", partitions=2), broker.create_topic(f"out-{name}", partitions=2)


def copy(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> Any:
    source, sink = topics
    rows = stream(spark, broker, subscribe=source, group=f"g-{sink}", startingOffsets="earliest", maxOffsetsPerTrigger="10").load()
    return stream_writer(rows.select("key", "value"), broker, checkpoint, topic=sink, group=f"g-{sink}")


def test_once_takes_everything_in_one_batch_and_goes_on_at_its_next_start(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str
) -> None:
    for first, end in ((0, 100), (100, 130)):
        write_numbers(broker, topics[0], range(first, end))
        query = run(copy(spark, broker, topics, checkpoint).trigger(once=True))
        assert numbers_of_batches(query) == [end - first], "one batch, whatever the limit"
        assert stock_values(broker, topics[1]) == list(range(end))
        assert lag(broker, f"g-{topics[1]}", topics[0]) == 0


@pytest.mark.parametrize(
    ("trigger", "line"),
    [
        ({"continuous": "1 second"}, "Data source ottla does not support continuous processing"),
        ({"realTime": "5 seconds"}, "Streaming real-time mode has the following limitation"),
    ],
)
def test_triggers_that_spark_has_not_for_sources_in_python(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str, trigger: dict[str, str], line: str
) -> None:
    write_numbers(broker, topics[0], range(10))
    assert line in failure(lambda: run(copy(spark, broker, topics, checkpoint).trigger(**trigger)))
    assert stock_values(broker, topics[1]) == []
    run(copy(spark, broker, topics, checkpoint))
    assert stock_values(broker, topics[1]) == list(range(10)), "the same checkpoint goes on with another trigger"


def test_the_output_mode_update_is_refused_by_spark_before_anything_is_written(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str
) -> None:
    """Spark refuses the output mode `update` before it calls the sink; docs/spark.md quotes its message."""
    write_numbers(broker, topics[0], range(10))
    found = failure(lambda: run(copy(spark, broker, topics, checkpoint).outputMode("update")))
    assert "requirement failed: ottla does not support Update mode" in found
    assert stock_values(broker, topics[1]) == []
    run(copy(spark, broker, topics, checkpoint))
    assert stock_values(broker, topics[1]) == list(range(10))
