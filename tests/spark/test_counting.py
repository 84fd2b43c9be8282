"""Queries whose sources have no offsets in the group: their batches are counted in the group, also if only a column names the topics."""

from __future__ import annotations

import pytest

from ottla.client import Client, Committed, TopicPartition
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.decision import BatchRange, PlannedBatch, counted_range, place_count
from ottla.spark.errors import OffsetConflictError
from tests.spark.encoded import task_output, values
from tests.spark.pipeline import Pipeline

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def committed_by(query_id: str, offset: int) -> Committed:
    return Committed(offset, metadata=CommitMetadata(query_id, offset - 1, offset - 1).to_text())


def test_the_partition_of_the_group_s_last_batch_goes_before_those_of_the_output() -> None:
    batch = PlannedBatch("g", "q", 3, counted_range(3, None))
    assert place_count(batch, {}, []) == batch
    assert place_count(batch, {}, [TopicPartition("b", 2), TopicPartition("a", 7)]).range == BatchRange({A: 3}, {A: 4}, is_counted=True)
    of_others = {A: Committed(17, metadata="by hand"), B: committed_by("former", 3)}
    assert place_count(batch, of_others, [A]).range.end == {B: 4}
    assert place_count(batch, {A: committed_by("former", 9), B: committed_by("q", 3)}, [A]).range.end == {B: 4}


def test_each_batch_takes_effect_once_though_a_column_alone_names_the_topics(pipeline: Pipeline, client: Client) -> None:
    here, elsewhere = TopicPartition(pipeline.sink, 1), TopicPartition(pipeline.source, 0)

    def commit(batch_id: int, *targets: TopicPartition) -> bool:
        """Commits with a driver that has just been started."""
        output = task_output({one: [b"%d" % batch_id] for one in targets})
        batch_range = counted_range(batch_id, None)
        return pipeline.driver().relay.commit([output], batch_id=batch_id, query_id="q", batch_range=batch_range).is_committed_now

    assert not commit(0) and not client.committed(pipeline.group)
    assert commit(1, here) and not commit(1, here)
    assert not commit(1, elsewhere), "a batch that runs again may give other rows"
    assert commit(2, elsewhere) and not commit(2, elsewhere)
    assert commit(3) and not commit(3) and not commit(3, here)
    pipeline.wait_for_markers(client)
    assert values(client, pipeline.sink) == [b"1"]
    assert {partition: one.offset for partition, one in client.committed(pipeline.group).items()} == {here._replace(partition=0): 4}


@pytest.mark.parametrize("is_in_option", [True, False])
def test_a_query_without_its_checkpoint_stops_instead_of_leaving_its_first_batch_out(
    pipeline: Pipeline, client: Client, is_in_option: bool
) -> None:
    target = TopicPartition(pipeline.sink, 0)

    def commit(query_id: str) -> bool:
        batch_range = counted_range(0, target.topic if is_in_option else None)
        output = task_output({target: [query_id.encode()]})
        return pipeline.driver().relay.commit([output], batch_id=0, query_id=query_id, batch_range=batch_range).is_committed_now

    assert commit("former")
    with pytest.raises(OffsetConflictError, match=r"has the last batch of another query, 0 of former, .*0 of new\. .*use a new group"):
        commit("new")
    assert not commit("former")
    pipeline.wait_for_markers(client)
    assert values(client, pipeline.sink) == [b"former"]
