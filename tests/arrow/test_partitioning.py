"""Rows get the partitions that Kafka's default partitioner chooses, in order, and no row is lost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.arrow.errors import RowsError
from ottla.arrow.partitioning import assign_partitions
from ottla.client import TopicPartition, partition_for_key
from tests.spark.text_kinds import TEXT_KINDS

COUNTS = {"orders": 8, "refunds": 3, "single": 1}
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary())])


def assigned(rows: Any, topic: str | None = None) -> dict[TopicPartition, list[dict[str, Any]]]:
    found: dict[TopicPartition, list[dict[str, Any]]] = {}
    for target, part in assign_partitions(rows, COUNTS, topic):
        assert part.num_rows
        found.setdefault(target, []).extend(part.to_pylist())
    return found


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for index in range(draw(st.integers(0, 30))):
        topic = draw(st.sampled_from(sorted(COUNTS)))
        partition = draw(st.none() | st.integers(0, COUNTS[topic] - 1))
        found.append({"topic": topic, "partition": partition, "key": draw(st.none() | st.binary(max_size=9)), "value": b"%d" % index})
    return found


@given(rows(), st.booleans())
def test_each_row_is_where_it_belongs(wanted: list[dict[str, Any]], is_table: bool) -> None:
    batch = pa.RecordBatch.from_pylist(wanted, SCHEMA)
    found = assigned(pa.Table.from_batches([batch, batch.slice(0, 0)]) if is_table else batch)
    place_of = {row["value"]: (target, at) for target, part in found.items() for at, row in enumerate(part)}
    assert len(place_of) == len(wanted) == sum(map(len, found.values()))
    before: dict[TopicPartition, int] = {}
    keyless: dict[str, set[int]] = {}
    for row in wanted:
        target, at = place_of[row["value"]]
        assert target.topic == row["topic"]
        if row["partition"] is not None:
            assert target.partition == row["partition"]
        elif row["key"] is not None:
            assert target.partition == partition_for_key(row["key"], COUNTS[target.topic])
        else:
            keyless.setdefault(target.topic, set()).add(target.partition)
        assert at == before.get(target, 0)
        before[target] = at + 1
    assert all(len(partitions) == 1 for partitions in keyless.values())
    assert all(set(row) == {"key", "value"} for part in found.values() for row in part)


def test_rows_without_a_key_take_turns_a_chunk() -> None:
    chunk = pa.record_batch({"value": [b"a", b"b"]})
    found = [next(iter(assigned(chunk, "orders"))).partition for _ in range(16)]
    assert found == [(found[0] + turn) % 8 for turn in range(16)]


def test_a_single_target_is_handed_on_as_it_is() -> None:
    chunk = pa.record_batch({"value": [b"a", b"b"], "key": [b"x", None]})
    [(target, part)] = assign_partitions(chunk, COUNTS, "single")
    assert target == TopicPartition("single", 0)
    assert part.column("value").buffers()[2].address == chunk.column("value").buffers()[2].address


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_keys_and_topics_of_any_kind(kind: Any) -> None:
    keys = ["a", "bb", None, "dddd"] * 3
    batch = pa.record_batch({"key": pa.array(keys, kind), "value": pa.nulls(12, pa.binary()), "topic": pa.array(["orders"] * 12, kind)})
    for part in (batch, batch.slice(1), batch.slice(2, 3)):
        found = assigned(part)
        for target, here in found.items():
            for row in here:
                key = row["key"].encode() if isinstance(row["key"], str) else row["key"]
                assert key is None or partition_for_key(key, 8) == target.partition
        assert sum(map(len, found.values())) == part.num_rows


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.binary_view()])
def test_headers_go_with_their_rows(kind: Any) -> None:
    headers = pa.array([[{"key": str(at), "value": b""}] for at in range(40)], pa.list_(pa.struct([("key", kind), ("value", pa.binary())])))
    batch = pa.record_batch({"key": [b"%d" % at for at in range(40)], "headers": headers, "value": [b"%d" % at for at in range(40)]})
    for part in assigned(batch, "orders").values():
        assert len(part) < 40
        for row in part:
            name = row["headers"][0]["key"]
            assert (name if isinstance(name, bytes) else name.encode()) == row["value"]


def test_a_topic_that_only_cut_off_rows_name_is_not_asked_for() -> None:
    topics = pa.array(["unknown", "orders"]).dictionary_encode()
    batch = pa.record_batch({"topic": topics, "value": [b"a", b"b"]}).slice(1)
    assert [target.topic for target in assigned(batch)] == ["orders"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": ["orders", None]}, "column 'topic' must not be null; nulls: 1, rows: 2"),
        ({"topic": ["orders", "nowhere"]}, "there is no topic 'nowhere' to write to"),
        ({"topic": [1, 2]}, "column 'topic' is of type int64; it has to be a string or binary"),
        ({}, "the rows have no column 'topic', and the option 'topic' is not set"),
        ({"topic": ["orders", "refunds"], "partition": [7, 3]}, "column 'partition': there is no partition 3 of topic 'refunds'"),
        ({"topic": ["orders", "refunds"], "partition": [-1, None]}, "there is no partition -1 of topic 'orders', which has 8"),
        ({"topic": ["orders", "refunds"], "partition": ["1", "2"]}, "column 'partition' is of type string; it has to be an integer"),
        ({"topic": ["orders", "orders"], "key": [1.5, 2.5]}, "column 'key' is of type double; it has to be a string or binary"),
    ],
)
def test_rows_that_have_no_place_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(RowsError, match=message):
        assigned(pa.record_batch({**columns, "value": [b"a", b"b"]}))
