"""Stateless and stateful pipelines on a real Spark; after each run `verify` proves from the log that it was exactly once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.client import EARLIEST, LATEST, Client, TopicPartition
from ottla.spark import Pipeline
from ottla.spark.errors import QueryFailedError
from ottla.spark.progress import progress_after
from ottla.spark.runner import run_pipelines
from ottla.spark.session import LOCAL_FILE_SYSTEM, STATE_STORE
from ottla.spark.state_file import STOPPED
from ottla.spark.verify import verify
from ottla.testing.broker import Broker


class World:
    """Topics for one test on the shared broker, and pipelines between them."""

    def __init__(self, client: Client, broker: Broker, session: Any, directory: Path) -> None:
        self.client, self.broker, self.session = client, broker, session
        self._directory = directory
        self._name = uuid.uuid4().hex[:12]

    def topic(self, name: str, partitions: int = 2) -> str:
        return self.broker.create_topic(f"{name}-{self._name}", partitions)

    def produce(self, topic: str, *values: dict[str, Any], key: str | None = None) -> None:
        with self.client.producer() as producer:
            for value in values:
                producer.produce(topic, json.dumps(value).encode(), key=(key or str(value.get("id", ""))).encode())

    def rows(self, topic: str) -> list[Any]:
        """Returns the committed values of a topic, decoded, in any order."""
        found = []
        partitions = [TopicPartition(topic, one.partition) for one in self.client.describe_topic(topic).partitions]
        ends = self.client.list_offsets(dict.fromkeys(partitions, LATEST))
        starts = self.client.list_offsets(dict.fromkeys(partitions, EARLIEST))
        for partition in partitions:
            for fetched in self.client.read(partition, starts[partition].offset, ends[partition].offset):
                found += [json.loads(record.value or b"null") for record in fetched.records()]
        return found

    def pipeline(self, source: Any, sink: str, transform: Any, **options: Any) -> Pipeline:
        group = f"group-{self._name}"
        return Pipeline(
            group=group,
            source=source,
            sink=sink,
            transform=transform,
            bootstrap=self.broker.get_bootstrap_server(),
            checkpoint=str(self._directory / "checkpoint"),
            trigger="available-now",
            **options,
        )

    def run(self, pipeline: Pipeline) -> Any:
        """Runs the pipeline until it has read everything, and verifies it."""
        (state,) = run_pipelines([pipeline], self.session)
        assert state.state == STOPPED
        found = verify(self.client, pipeline.group, pipeline.sinks)
        assert found.is_proved, (found.faults, found.notes)
        assert (found.batches, found.rows) == (state.commits, state.rows_out)
        return state


@pytest.fixture
def world(spark: Any, broker: Broker, tmp_path: Path) -> Iterator[World]:
    with ottla.client.connect(broker.get_bootstrap_server()) as client:
        yield World(client, broker, spark, tmp_path)


def test_a_stateless_pipeline_goes_on_where_it_stopped(world: World) -> None:
    source, sink = world.topic("words"), world.topic("loud")
    pipeline = world.pipeline(source, sink, lambda rows: rows.selectExpr("key", "upper(cast(value AS string)) AS value"))
    world.produce(source, *({"id": number, "w": "abc"} for number in range(100)))
    state = world.run(pipeline)
    assert (state.rows_in, state.rows_out, state.starts, state.log_restarts, state.lag) == (100, 100, 1, 0, 0)
    world.produce(source, *({"id": number, "w": "abc"} for number in range(100, 130)))
    state = world.run(pipeline)
    assert (state.rows_in, state.rows_out, state.starts, state.log_restarts, state.lag) == (130, 130, 2, 1, 0)
    assert sorted(row["ID"] for row in world.rows(sink)) == list(range(130))


SCHEMA = "id INT, moment TIMESTAMP, amount INT"


def per_window(rows: Any) -> Any:
    """Sums of ten minutes; each is written once, after the watermark has passed its end."""
    values = rows.selectExpr(f"from_json(cast(value AS string), '{SCHEMA}') AS v").select("v.*").withWatermark("moment", "0 minutes")
    sums = values.groupBy(_window("moment", "10 minutes")).sum("amount")
    return sums.selectExpr("to_json(struct(window.start AS start, `sum(amount)` AS total)) AS value")


def _window(column: str, duration: str) -> Any:
    from pyspark.sql.functions import window

    return window(column, duration)


def test_windows_with_a_watermark_are_written_once_also_by_batches_without_data(world: World) -> None:
    source, sink = world.topic("amounts", 1), world.topic("sums")
    pipeline = world.pipeline(source, sink, per_window)
    world.produce(source, *({"id": n, "moment": f"2013-01-01T00:{n:02}:00Z", "amount": 1} for n in range(25)))
    world.run(pipeline)
    assert sorted(row["total"] for row in world.rows(sink)) == [10, 10]
    world.produce(source, {"id": 25, "moment": "2013-01-01T01:00:00Z", "amount": 5})
    world.run(pipeline)
    assert sorted(row["total"] for row in world.rows(sink)) == [5, 10, 10]


def running_totals(rows: Any) -> Any:
    """The total of each id so far, written whenever it changes."""
    values = rows.selectExpr(f"from_json(cast(value AS string), '{SCHEMA}') AS v").select("v.*")
    return values.groupBy("id").sum("amount").selectExpr(
        "cast(id AS string) AS key", "to_json(struct(id, `sum(amount)` AS total)) AS value"
    )


def test_running_aggregates_in_update_mode(world: World) -> None:
    source, sink = world.topic("amounts"), world.topic("totals")
    pipeline = world.pipeline(source, sink, running_totals, output_mode="update")
    world.produce(source, *({"id": n % 3, "moment": None, "amount": n} for n in range(12)))
    world.run(pipeline)
    world.produce(source, {"id": 1, "amount": 100})
    assert world.run(pipeline).log_restarts == 1
    totals = world.rows(sink)
    assert {row["id"]: max(one["total"] for one in totals if one["id"] == row["id"]) for row in totals} == {0: 18, 1: 122, 2: 26}
    assert len(totals) == 4


def test_complete_results_are_written_again_with_each_batch(world: World) -> None:
    source, sink = world.topic("amounts"), world.topic("totals")
    pipeline = world.pipeline(source, sink, running_totals, output_mode="complete")
    world.produce(source, *({"id": n % 3, "amount": n} for n in range(12)))
    world.run(pipeline)
    assert sorted((row["id"], row["total"]) for row in world.rows(sink)) == [(0, 18), (1, 22), (2, 26)]
    world.produce(source, {"id": 1, "amount": 100})
    world.run(pipeline)
    totals = sorted((row["id"], row["total"]) for row in world.rows(sink))
    assert totals == [(0, 18), (0, 18), (1, 22), (1, 122), (2, 26), (2, 26)], "the second batch wrote all of them, changed or not"


def joined(orders: Any, payments: Any) -> Any:
    """Orders with their payments, within an hour."""
    from pyspark.sql.functions import expr

    sides = []
    for rows, names in ((orders, "id AS order_id, moment AS ordered"), (payments, "id AS payment_id, moment AS paid, amount")):
        values = rows.selectExpr("from_json(cast(value AS string), 'id INT, moment TIMESTAMP, amount INT') AS v").select("v.*")
        sides.append(values.withWatermark("moment", "1 hour").selectExpr(*names.split(", ")))
    found = sides[0].join(sides[1], expr("order_id = payment_id AND paid BETWEEN ordered AND ordered + INTERVAL 1 HOUR"))
    return found.selectExpr("cast(order_id AS string) AS key", "to_json(struct(order_id, amount)) AS value")


def test_a_join_of_two_streams(world: World) -> None:
    orders, payments, sink = world.topic("orders"), world.topic("payments"), world.topic("paid")
    pipeline = world.pipeline({"orders": orders, "payments": [payments]}, sink, joined)
    assert pipeline.sources == [orders, payments]
    world.produce(orders, *({"id": n, "moment": "2013-01-01T00:00:00Z"} for n in range(20)))
    world.run(pipeline)
    assert world.rows(sink) == []
    world.produce(payments, *({"id": n, "moment": "2013-01-01T00:30:00Z", "amount": n * 10} for n in range(0, 20, 2)))
    world.run(pipeline)
    assert sorted((row["order_id"], row["amount"]) for row in world.rows(sink)) == [(n, n * 10) for n in range(0, 20, 2)]


def parts_and_parents(rows: Any, others: Any) -> Any:
    """The rows whose number others name as their parent."""
    from pyspark.sql.functions import expr

    left, right = (
        some.selectExpr(f"get_json_object(cast(value AS string), '$.{field}') AS {name}")
        for some, field, name in ((rows, "id", "id"), (others, "parent", "parent"))
    )
    return left.join(right, expr("id = parent")).selectExpr("to_json(struct(id, parent)) AS value")


@pytest.mark.parametrize("is_of_the_group", [True, False])
def test_a_topic_on_both_sides_of_a_join(world: World, is_of_the_group: bool) -> None:
    """A topic can be on both sides of a join. Both reads have the pipeline's group, or one of them has no group and its position is only in
    the checkpoint.
    """
    source, sink = world.topic("parts"), world.topic("pairs")

    def with_itself(rows: Any) -> Any:
        options = {"kafka.bootstrap.servers": world.broker.get_bootstrap_server(), "subscribe": source, "startingOffsets": "earliest"}
        return parts_and_parents(rows, rows.sparkSession.readStream.format("ottla").options(**options).load())

    if is_of_the_group:
        pipeline = world.pipeline({"rows": source, "others": source}, sink, parts_and_parents)
    else:
        pipeline = world.pipeline(source, sink, with_itself)
    world.produce(source, *({"id": number, "parent": number // 2} for number in range(10)))
    world.run(pipeline)
    world.produce(source, {"id": 20, "parent": 9})
    world.run(pipeline)
    assert sorted(int(row["id"]) for row in world.rows(sink)) == sorted([number // 2 for number in range(10)] + [9])


def count_keys(rows: Any) -> Any:
    return rows.groupBy("key").count().selectExpr("key", "cast(count AS string) AS value")


def test_a_checkpoint_has_no_files_with_checksums_which_cost_a_process_each(world: World) -> None:
    source, sink = world.topic("words"), world.topic("copies")
    pipeline = world.pipeline(source, sink, lambda rows: rows.select("value"))
    world.produce(source, {"id": 1})
    world.run(pipeline)
    written = {path.name for folder in ("offsets", "commits") for path in Path(pipeline.checkpoint, folder).iterdir()}
    assert written >= {"0", "1"} and not any(name.endswith(".crc") for name in written)
    world.session.conf.set(STATE_STORE, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    try:
        counts = world.pipeline(source, world.topic("counts"), count_keys, output_mode="complete")
        counts = replace(counts, checkpoint=f"{pipeline.checkpoint}-2", group=f"{pipeline.group}-2")
        world.run(counts)
    finally:
        world.session.conf.unset(STATE_STORE)
    assert Path(counts.checkpoint, "offsets", ".1.crc").exists(), "this store needs the usual file system"
    assert world.session.conf.get(LOCAL_FILE_SYSTEM, "") == ""


def test_reports_of_batches_are_fetched_from_the_last_known_one_on(world: World) -> None:
    source, sink = world.topic("words"), world.topic("copies")
    pipeline = world.pipeline(source, sink, lambda rows: rows.select("value"), source_options={"maxOffsetsPerTrigger": "1"})
    world.produce(source, *({"id": number} for number in range(4)))
    query = pipeline.start(world.session)
    query.awaitTermination()
    reports = [(one["batchId"], one["timestamp"], one["durationMs"], one["numInputRows"]) for one in query.recentProgress]
    assert len(reports) >= 4
    for known in (-1, 2, reports[-1][0]):
        found = [(one["batchId"], one["timestamp"], one["durationMs"], one["numInputRows"]) for one in progress_after(query, known)]
        assert found == [one for one in reports if one[0] > known]


def test_a_source_of_another_group_is_refused(world: World) -> None:
    source, sink = world.topic("parts"), world.topic("pairs")

    def with_another(rows: Any) -> Any:
        options = {"kafka.bootstrap.servers": world.broker.get_bootstrap_server(), "subscribe": source, "group": f"{source}-others"}
        return parts_and_parents(rows, rows.sparkSession.readStream.format("ottla").options(**options).load())

    world.produce(source, {"id": 1, "parent": 1})
    with pytest.raises(QueryFailedError, match=rf"group: .* have the groups .*'{source}-others'.*, and the sink would commit"):
        run_pipelines([world.pipeline(source, sink, with_another)], world.session)


def test_a_source_that_was_created_anew_stops_the_pipeline_until_that_is_accepted(world: World) -> None:
    source, sink = world.topic("words", 1), world.topic("copies")
    pipeline = world.pipeline(source, sink, lambda rows: rows.select("value"))
    world.produce(source, *({"id": number} for number in range(10)))
    world.run(pipeline)
    world.client.delete_topic(source)
    world.broker.create_topic(source)
    world.produce(source, *({"id": number} for number in range(100, 120)))
    with pytest.raises(QueryFailedError, match=f"^DataLossError: subscribe: topic '{source}' was deleted and created again") as caught:
        run_pipelines([pipeline], world.session)
    assert "\n" not in str(caught.value)
    state = world.run(replace(pipeline, source_options={"failOnDataLoss": "false"}))
    assert sorted(row["id"] for row in world.rows(sink)) == [*range(10), *range(100, 120)]
    assert (state.lag, [one.committed for one in state.positions]) == (0, [20])


def test_a_source_that_does_not_exist_is_one_line(world: World) -> None:
    pipeline = world.pipeline("no-such-topic", world.topic("sink"), lambda rows: rows.select("value"))
    with pytest.raises(QueryFailedError) as caught:
        run_pipelines([pipeline], world.session)
    assert "no-such-topic" in str(caught.value) and "\n" not in str(caught.value)
