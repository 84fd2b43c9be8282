"""Queries whose broker stops or whose group is in use: they stop with one clear line, leave no partly visible output, and continue later.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer

from ottla.testing.broker import Broker
from tests.spark_jobs.queries import WAIT_S, failure, lag, run, stock_values, stream, stream_writer, write_numbers

NO_COMMITS = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
QUICK = {"kafka.request.timeout.ms": "1500", "kafka.delivery.timeout.ms": "3000"}


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> tuple[str, str]:
    name = f"{abs(hash(request.node.name)):x}"
    return broker.create_topic(f"in-{name}", partitions=2), broker.create_topic(f"out-{name}", partitions=2)


def copy(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str, **given: str) -> Any:
    source, sink = topics
    rows = stream(spark, broker, subscribe=source, group=f"g-{sink}", startingOffsets="earliest", **given).load()
    return stream_writer(rows.select("key", "value"), broker, checkpoint, topic=sink, group=f"g-{sink}", **given)


def test_a_broker_that_goes_away_stops_the_query_until_a_restart(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str
) -> None:
    by_proxy = {"kafka.bootstrap.servers": broker.bootstrap_server, "maxOffsetsPerTrigger": "50", **QUICK}
    write_numbers(broker, topics[0], range(200))
    query = copy(spark, broker, topics, checkpoint, **by_proxy).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        write_numbers(broker, topics[0], range(200, 400))
        with broker.pause():
            message = failure(lambda: query.awaitTermination(WAIT_S))
    finally:
        query.stop()
    assert f"kafka.bootstrap.servers={broker.bootstrap_server}" in message or "was not committed" in message
    before = stock_values(broker, topics[1])
    assert before == sorted(set(before)), "no record twice"
    assert lag(broker, f"g-{topics[1]}", topics[0]) == 400 - len(before), "what is visible is what the group has committed"
    run(copy(spark, broker, topics, checkpoint))
    assert stock_values(broker, topics[1]) == list(range(400))


def test_a_group_in_use_by_live_members(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> None:
    write_numbers(broker, topics[0], range(10))
    member = Consumer({"bootstrap.servers": broker.direct_server, "group.id": f"g-{topics[1]}", **NO_COMMITS})
    try:
        member.subscribe([topics[0]])
        assert member.poll(WAIT_S) is not None, "it has joined, and reads"
        message = failure(lambda: run(copy(spark, broker, topics, checkpoint)))
        assert f"OffsetConflictError: group: 'g-{topics[1]}' has live members (1, on " in message
        assert stock_values(broker, topics[1]) == []
    finally:
        member.close()
    run(copy(spark, broker, topics, checkpoint))
    assert stock_values(broker, topics[1]) == list(range(10))


def test_a_row_that_cannot_be_written_stops_a_stream_at_its_batch_until_the_query_is_mended(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str
) -> None:
    source, sink = topics
    rows = stream(spark, broker, subscribe=source, group=f"g-{sink}", startingOffsets="earliest").load()

    def query(value: str = "value", topic: str = f"'{sink}'", partition: str = "CAST(NULL AS int)") -> Any:
        texts = rows.selectExpr("key", "cast(value AS string) AS value")
        chosen = texts.selectExpr("key", f"{value} AS value", f"{topic} AS topic", f"{partition} AS partition")
        return stream_writer(chosen, broker, checkpoint, group=f"g-{sink}")

    write_numbers(broker, source, range(50))
    run(query())
    write_numbers(broker, source, range(50, 100))
    for bad, message in (
        ({"topic": f"if(value = '60', NULL, '{sink}')"}, "OutputError: column 'topic' must not be null; nulls: 1"),
        ({"partition": "if(value = '60', 2, NULL)"}, f"OutputError: column 'partition': there is no partition 2 of topic '{sink}'"),
        ({"value": "if(value = '60', repeat(value, 1000000), NULL)"}, "raise kafka.max.request.size and the topic's max.message.bytes"),
    ):
        found = failure(partial(run, query(**bad)))
        assert message in found and "Traceback" not in found.split("JVM stacktrace")[0]
        assert stock_values(broker, sink) == list(range(50)), "nothing of the batch is visible"
        assert lag(broker, f"g-{sink}", source) == 50
    run(query())
    assert stock_values(broker, sink) == list(range(100))
