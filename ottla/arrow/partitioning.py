"""Chooses the topic and partition of each row, as Kafka's default partitioner does, and groups the rows by partition.

A column `partition` has precedence; otherwise the murmur2 of the key decides. Rows without a key get one partition per chunk, and the next
chunk uses the next partition, so that batches are full and partitions are used evenly. Each process begins with a random partition.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.arrow.columns import as_binary, binary_column, find_column, without_views
from ottla.arrow.errors import RowsError
from ottla.arrow.murmur2 import hash_keys
from ottla.client import TopicPartition

_turns = itertools.count(random.randrange(1 << 31))
"""Counter of chunks; modulo the topic's partitions it is the partition for rows without a key."""

_RADIX_MAX = 1 << 16
"""numpy sorts numbers of 16 bits without comparisons."""


def assign_partitions(
    rows: Any, partition_counts: Mapping[str, int], default_topic: str | None = None
) -> Iterator[tuple[TopicPartition, Any]]:
    """Yields the rows (a pyarrow RecordBatch or Table) of each target partition, in their order, with the columns that `encode_rows` uses.

    `partition_counts` has every topic that may be written; rows without a column `topic` are sent to `default_topic`. A null or unknown
    topic, and a partition that the topic does not have, raise `RowsError`.
    """
    batches = rows.combine_chunks().to_batches() if isinstance(rows, pa.Table) else [rows]
    for batch in batches:
        if batch.num_rows:
            yield from _assign(batch, partition_counts, default_topic)


def _assign(rows: Any, partition_counts: Mapping[str, int], default_topic: str | None) -> Iterator[tuple[TopicPartition, Any]]:
    topics, of_rows = _topics(rows, default_topic)
    counts = [_partition_count(topic, partition_counts) for topic in topics]
    payload = _payload(rows)
    partitions = _partitions(rows, topics, counts, of_rows)
    targets = [TopicPartition(topic, partition) for topic, count in zip(topics, counts, strict=True) for partition in range(count)]
    if of_rows is not None:
        partitions = partitions + np.append(0, np.cumsum(counts))[of_rows]
    first, last = int(partitions.min()), int(partitions.max())
    if first == last:
        yield targets[first], payload
        return
    order = np.argsort(partitions.astype(np.uint16) if last < _RADIX_MAX else partitions, kind="stable")
    payload = payload.take(pa.array(order))
    ends = np.cumsum(np.bincount(partitions))
    start = 0
    for target, stop in zip(targets, ends.tolist(), strict=False):
        if stop > start:
            yield target, payload.slice(start, stop - start)
            start = stop


def _payload(rows: Any) -> Any:
    """Returns the columns of the records. Columns of view types are converted, because pyarrow's `take` does not support them."""
    names = [name for name in rows.schema.names if name in ("key", "value", "headers", "timestamp")]
    columns = {name: find_column(rows, name) for name in names}
    return pa.record_batch({name: without_views(column, name) for name, column in columns.items()})


def _topics(rows: Any, default_topic: str | None) -> tuple[list[str], Any | None]:
    """Returns the topics of the rows, and for each row the index of its topic (None if all have the same)."""
    column = find_column(rows, "topic")
    if column is None:
        if default_topic is None:
            raise RowsError("the rows have no column 'topic', and the option 'topic' is not set")
        return [default_topic], None
    if column.null_count:
        raise RowsError(f"column 'topic' must not be null; nulls: {column.null_count}, rows: {len(column)}")
    column = as_binary(column, "topic").dictionary_encode()
    topics = [topic.decode("utf-8", "replace") for topic in column.dictionary.to_pylist()]
    return topics, None if len(topics) == 1 else column.indices.to_numpy(zero_copy_only=False)


def _partition_count(topic: str, partition_counts: Mapping[str, int]) -> int:
    count = partition_counts.get(topic, 0)
    if count < 1:
        raise RowsError(f"there is no topic {topic!r} to write to")
    return count


def _partitions(rows: Any, topics: list[str], counts: list[int], of_rows: Any | None) -> Any:
    row_counts = counts[0] if of_rows is None else np.array(counts, np.int64)[of_rows]
    chosen = _chosen_partitions(rows)
    if chosen is None:
        return _partitions_by_key(rows, row_counts)
    partitions = chosen.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    wrong = np.flatnonzero((partitions < 0) | (partitions >= row_counts))
    if len(wrong):
        index = 0 if of_rows is None else int(of_rows[wrong[0]])
        wanted, topic, count = partitions[wrong[0]], topics[index], counts[index]
        raise RowsError(f"column 'partition': there is no partition {wanted} of topic {topic!r}, which has {count}")
    if chosen.null_count:
        partitions = np.where(chosen.is_null().to_numpy(zero_copy_only=False), _partitions_by_key(rows, row_counts), partitions)
    return partitions


def _chosen_partitions(rows: Any) -> Any | None:
    """Returns the column `partition`, or None if it is absent or all null."""
    column = find_column(rows, "partition")
    if column is None or column.null_count == len(column):
        return None
    if not pa.types.is_integer(column.type):
        raise RowsError(f"column 'partition' is of type {column.type}; it has to be an integer")
    return column


def _partitions_by_key(rows: Any, row_counts: Any) -> Any:
    keys = binary_column(rows, "key")
    keyless = next(_turns) % row_counts + np.zeros(rows.num_rows, np.int64)
    if keys is None or keys.null_count == len(keys):
        return keyless
    by_key = (hash_keys(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % row_counts
    return by_key if not keys.null_count else np.where(keys.is_null().to_numpy(zero_copy_only=False), keyless, by_key)
