"""`foreachBatch` has the guarantees of the sink: several outputs of a batch are written in one transaction, once, also if Spark runs a
batch again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.spark import foreach_batch
from ottla.spark.errors import OptionError
from ottla.spark.foreach_batch import exactly_once
from ottla.spark.options import SinkOptions
from ottla.spark.sink import commit_outputs
from ottla.spark.spool import TaskOutput
from ottla.spark.verify import verify
from ottla.testing.broker import Broker
from tests.spark_jobs.queries import WAIT_S

from .test_pipeline import World


@pytest.fixture
def world(spark: Any, broker: Broker, tmp_path: Path) -> Iterator[World]:
    with ottla.client.connect(broker.get_bootstrap_server()) as client:
        yield World(client, broker, spark, tmp_path)


def run(world: World, source: str, function: Any, checkpoint: str, **options: str) -> None:
    """Runs a query with the group `g-SOURCE` until it has read everything."""
    shared = {"kafka.bootstrap.servers": world.broker.get_bootstrap_server(), "group": f"g-{source}"}
    rows = world.session.readStream.format("ottla").options(**shared, subscribe=source, startingOffsets="earliest").load()
    commit = exactly_once(function, {**shared, **options}, checkpoint=checkpoint)
    query = rows.writeStream.foreachBatch(commit).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()


def test_two_outputs_of_a_batch_are_one_transaction(world: World, checkpoint: str) -> None:
    source, odd, even = world.topic("numbers"), world.topic("odd"), world.topic("even")
    calls = []

    def split(rows: Any, batch_id: int) -> list[Any]:
        calls.append(batch_id)
        numbers = rows.selectExpr("key", "value", "cast(get_json_object(cast(value AS string), '$.id') AS int) AS id")
        topics = {1: odd, 0: even}
        return [numbers.where(f"id % 2 = {rest}").selectExpr("key", "value", f"'{topic}' AS topic") for rest, topic in topics.items()]

    world.produce(source, *({"id": n} for n in range(40)))
    run(world, source, split, checkpoint)
    assert sorted(row["id"] for row in world.rows(odd)) == list(range(1, 40, 2))
    found = verify(world.client, f"g-{source}", [odd, even])
    assert found.is_proved and found.rows == 40

    last = max(int(path.name) for path in Path(checkpoint, "commits").iterdir() if path.name.isdigit())
    Path(checkpoint, "commits", str(last)).unlink()
    Path(checkpoint, "commits", f".{last}.crc").unlink(missing_ok=True)
    before = len(calls)
    run(world, source, split, checkpoint)
    assert calls[before] == last  # Spark has run the batch again, and its output was not written again
    assert sorted(row["id"] for row in world.rows(even)) == list(range(0, 40, 2))
    assert verify(world.client, f"g-{source}", [odd, even]).is_proved


def test_the_option_task_output_chooses_the_way(world: World, checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option `taskOutput` works as in the sink. All tasks see the driver's directory here, so `auto` would use files."""
    source, sink = world.topic("numbers"), world.topic("copies")
    found: list[TaskOutput] = []

    def observed(options: SinkOptions, outputs: Sequence[TaskOutput], batch_id: int, seen: Iterable[str], *, run: str) -> None:
        found.extend(outputs)
        commit_outputs(options, outputs, batch_id, seen, run=run)

    monkeypatch.setattr(foreach_batch, "commit_outputs", observed)
    world.produce(source, *({"id": n} for n in range(20)))
    halves = [f"cast(get_json_object(cast(value AS string), '$.id') AS int) % 2 = {rest}" for rest in (0, 1)]
    run(world, source, lambda rows, batch_id: [rows.where(half) for half in halves], checkpoint, topic=sink, taskOutput="staged")
    written = [output for output in found if output.rows]
    assert len(written) > 1 and all(output.staged is not None and output.path is None for output in written)
    proof = verify(world.client, f"g-{source}", [sink])
    assert proof.is_proved and proof.rows == 20


def test_a_batch_without_output_moves_the_offsets(world: World, checkpoint: str) -> None:
    source, sink = world.topic("numbers"), world.topic("nothing")
    world.produce(source, *({"id": n} for n in range(7)))
    run(world, source, lambda rows, batch_id: None, checkpoint, topic=sink)
    found = verify(world.client, f"g-{source}", [sink])
    assert found.is_proved and found.rows == 0 and sum(one.rows for one in found.source) == 7


def test_the_group_is_needed() -> None:
    with pytest.raises(OptionError, match="group: missing"):
        exactly_once(lambda rows, batch_id: None, {"kafka.bootstrap.servers": "localhost:9092"}, checkpoint="c")
