"""A stream that a query uses twice, in a union of two of its parts or a join with itself, and two reads of one topic: exactly once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.broker import Broker
from tests.spark_jobs.queries import (
    failure,
    forget_last_commit,
    lag,
    run,
    stock_records,
    stock_values,
    stream,
    stream_writer,
    write_numbers,
)


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> tuple[str, str]:
    name = f"{abs(hash(request.node.name)):x}"
    return broker.create_topic(f"in-{name}", partitions=2), broker.create_topic(f"out-{name}", partitions=2)


def numbers(spark: Any, broker: Broker, topics: tuple[str, str], **given: str) -> Any:
    rows = stream(spark, broker, subscribe=topics[0], group=f"g-{topics[1]}", startingOffsets="earliest", **given).load()
    return rows.selectExpr("key", "cast(cast(value AS string) AS int) AS number")


def parts(spark: Any, broker: Broker, topics: tuple[str, str], **given: str) -> Any:
    """Returns the even numbers unchanged, and all numbers once more with another key."""
    rows = numbers(spark, broker, topics, **given)
    even = rows.where("number % 2 = 0").selectExpr("'even' AS key", "cast(number AS string) AS value")
    return even.union(rows.selectExpr("'all' AS key", "cast(number AS string) AS value"))


def pairs(spark: Any, broker: Broker, topics: tuple[str, str], **given: str) -> Any:
    """Returns each number with the number before it."""
    rows = numbers(spark, broker, topics, **given)
    before = rows.selectExpr("number + 1 AS following", "number AS earlier")
    return rows.join(before, rows.number == before.following).selectExpr("'pair' AS key", "concat(earlier, '-', number) AS value")


def writer(rows: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> Any:
    return stream_writer(rows, broker, checkpoint, topic=topics[1], group=f"g-{topics[1]}")


def found(broker: Broker, topics: tuple[str, str]) -> Counter[tuple[str, str]]:
    return Counter((message.key().decode(), message.value().decode()) for message in stock_records(broker, topics[1]))


def expected_parts(count: int) -> Counter[tuple[str, str]]:
    return Counter([("even", str(n)) for n in range(0, count, 2)] + [("all", str(n)) for n in range(count)])


def expected_pairs(count: int) -> Counter[tuple[str, str]]:
    return Counter(("pair", f"{n}-{n + 1}") for n in range(count - 1))


def lines_of(checkpoint: str) -> list[list[dict[str, Any]]]:
    """Returns the offsets of the query's sources in each entry of its offset log."""
    logs = [path for path in (Path(checkpoint) / "offsets").iterdir() if path.name.isdigit()]
    return [[json.loads(line) for line in path.read_text().splitlines()[2:]] for path in sorted(logs, key=lambda path: int(path.name))]


def test_a_union_of_two_parts_is_written_once_over_replays_and_a_lost_checkpoint(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str
) -> None:
    write_numbers(broker, topics[0], range(100))
    query = run(writer(parts(spark, broker, topics, maxOffsetsPerTrigger="30"), broker, topics, checkpoint))
    assert len(query.lastProgress["sources"]) == 1, "to Spark both uses are one source"
    assert found(broker, topics) == expected_parts(100)
    assert all(len(lines) == 2 and lines[0] == lines[1] for lines in lines_of(checkpoint)), "each use has its line, and the same offsets"
    forget_last_commit(checkpoint)
    write_numbers(broker, topics[0], range(100, 150))
    run(writer(parts(spark, broker, topics, maxOffsetsPerTrigger="30"), broker, topics, checkpoint))
    assert found(broker, topics) == expected_parts(150)
    shutil.rmtree(checkpoint)
    write_numbers(broker, topics[0], range(150, 170))
    run(writer(parts(spark, broker, topics), broker, topics, checkpoint))
    assert found(broker, topics) == expected_parts(170)
    assert lag(broker, f"g-{topics[1]}", topics[0]) == 0


def test_a_join_with_itself_has_each_pair_once(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> None:
    for first, end in ((0, 40), (40, 60)):
        write_numbers(broker, topics[0], range(first, end))
        query = run(writer(pairs(spark, broker, topics, maxOffsetsPerTrigger="30"), broker, topics, checkpoint))
        assert len(query.lastProgress["sources"]) == 1, "to Spark both uses are one source"
        assert found(broker, topics) == expected_pairs(end)
        forget_last_commit(checkpoint)


def test_two_reads_with_other_limits_stand_apart_for_a_while_and_each_row_is_written_once(
    spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str, tmp_path: Path
) -> None:
    def query(at: str = checkpoint) -> Any:
        slow, fast = (numbers(spark, broker, topics, maxOffsetsPerTrigger=limit) for limit in ("10", "35"))
        named = [rows.selectExpr(f"'{key}' AS key", "cast(number AS string) AS value") for key, rows in (("slow", slow), ("fast", fast))]
        return writer(named[0].union(named[1]), broker, topics, at).trigger(processingTime="0 seconds")

    def finish(started: Any) -> None:
        try:
            started.processAllAvailable()
        finally:
            started.stop()

    def expected(count: int) -> Counter[tuple[str, str]]:
        return Counter((key, str(n)) for key in ("slow", "fast") for n in range(count))

    write_numbers(broker, topics[0], range(70))
    query_in_mid = query().start()
    while len(lines_of(checkpoint) if Path(checkpoint, "commits", "2").exists() else []) < 3:
        assert query_in_mid.isActive, query_in_mid.exception()
        query_in_mid.awaitTermination(0.05)
    query_in_mid.stop()
    assert lines_of(checkpoint)[2][0] != lines_of(checkpoint)[2][1]
    message = failure(lambda: finish(query(str(tmp_path / "new")).start()))
    assert f"OffsetConflictError: group: the last batch of group 'g-{topics[1]}' left several sources of one query at different" in message
    forget_last_commit(checkpoint)
    finish(query().start())
    assert found(broker, topics) == expected(70)
    shutil.rmtree(checkpoint)
    write_numbers(broker, topics[0], range(70, 80))
    finish(query().start())
    assert found(broker, topics) == expected(80), "they had come level"


def test_named_sources_and_one_that_is_added_at_a_restart(spark: Any, broker: Broker, topics: tuple[str, str], checkpoint: str) -> None:
    more = broker.create_topic(f"more-{topics[1]}")

    def named(topic: str, name: str) -> Any:
        given = {"kafka.bootstrap.servers": broker.direct_server, "group": f"g-{topics[1]}", "startingOffsets": "earliest"}
        rows = spark.readStream.format("ottla").options(**given, subscribe=topic).name(name).load()
        return rows.select("key", "value")

    setting = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    spark.conf.set(setting, "true")
    try:
        write_numbers(broker, topics[0], range(50))
        run(writer(named(topics[0], "orders"), broker, topics, checkpoint))
        write_numbers(broker, topics[0], range(50, 60))
        write_numbers(broker, more, range(60, 80))
        forget_last_commit(checkpoint)
        run(writer(named(more, "added").union(named(topics[0], "orders")), broker, topics, checkpoint))
    finally:
        spark.conf.unset(setting)
    assert stock_values(broker, topics[1]) == list(range(80))
    assert lag(broker, f"g-{topics[1]}", more) == lag(broker, f"g-{topics[1]}", topics[0]) == 0
