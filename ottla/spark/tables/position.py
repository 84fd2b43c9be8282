"""Encodes and decodes a pipeline's position in its source, which each commit of a table has as JSON in the table's log.

The position has the form of a group's committed offsets (`committed`), so that `decision.py` decides about tables as it does about topics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.client import Committed, TopicPartition
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.decision import PlannedBatch

KEY = "ottla"
"""The name of the position in Delta's commit information, and the prefix of its names elsewhere."""

UNKNOWN_START = -1
"""The start of a partition that is new in the batch."""


class TableCommit(NamedTuple):
    """The batch that a commit of the table contains.

    `sequence` counts the pipeline's commits to this table from 1. `token` identifies one execution of the batch, `directory` has the files
    of all executions. `ranges` are the offsets (start, end) of all source partitions; `topic_ids`, `apart`, `run` and `restarts` as in
    `CommitMetadata`.
    """

    group: str
    sequence: int
    token: str
    query_id: str
    batch_id: int
    rows: int
    directory: str
    ranges: Mapping[TopicPartition, tuple[int, int]]
    topic_ids: Mapping[str, str]
    apart: str = ""
    run: str = ""
    restarts: int = 0

    def committed(self) -> dict[TopicPartition, Committed]:
        """Returns the position as committed offsets with the metadata of a pipeline's group."""
        return {
            partition: Committed(
                end,
                metadata=CommitMetadata(
                    self.query_id, self.batch_id, start, self.rows, "", self.topic_ids.get(partition.topic, ""), self.apart,
                    self.run, self.restarts,
                ).to_text(),
            )
            for partition, (start, end) in self.ranges.items()
        }

    def to_value(self) -> dict[str, Any]:
        """Returns the position as a value for JSON."""
        ranges: dict[str, dict[str, list[int]]] = {}
        for partition in sorted(self.ranges):
            ranges.setdefault(partition.topic, {})[str(partition.partition)] = list(self.ranges[partition])
        others = ("ranges", "topic_ids", "apart", "run", "restarts")
        fields = {name: value for name, value in self._asdict().items() if name not in others}
        apart = {"apart": self.apart} if self.apart else {}
        run = {"run": self.run, "restarts": self.restarts} if self.run else {}
        return {**fields, "ranges": ranges, "topic_ids": dict(sorted(self.topic_ids.items())), **apart, **run}

    def to_text(self) -> str:
        return json.dumps(self.to_value(), separators=(",", ":"))


class Position(NamedTuple):
    """A pipeline's position in a table's log: the sequence number of its last commit (0 for none), and its offsets.

    `last` is that commit; None if there is none, or if it has expired from the log. Then the offsets have no metadata.
    """

    sequence: int
    committed: Mapping[TopicPartition, Committed]
    last: TableCommit | None = None


def batch_commit(batch: PlannedBatch, *, sequence: int, token: str, rows: int, directory: str) -> TableCommit:
    """Returns the commit of a batch."""
    start, end, topic_ids, (_, apart), _ = batch.range
    ranges = {partition: (offset if start is None else start.get(partition, UNKNOWN_START), offset) for partition, offset in end.items()}
    ids = {topic: topic_ids[topic] for topic in {partition.topic for partition in end} if topic in topic_ids}
    return TableCommit(
        batch.group, sequence, token, batch.query_id, batch.batch_id, rows, directory, ranges, ids, apart, batch.run, batch.restarts
    )


def read_commit(value: Any) -> TableCommit | None:
    """Reads a position, given as JSON or as its value; returns None if a pipeline has not written it."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
        ranges = {
            TopicPartition(topic, int(number)): (int(start), int(end))
            for topic, partitions in found["ranges"].items()
            for number, (start, end) in partitions.items()
        }
        return TableCommit(
            str(found["group"]),
            int(found["sequence"]),
            str(found["token"]),
            str(found["query_id"]),
            int(found["batch_id"]),
            int(found["rows"]),
            str(found["directory"]),
            ranges,
            {str(topic): str(topic_id) for topic, topic_id in found["topic_ids"].items()},
            str(found.get("apart", "")),
            str(found.get("run", "")),
            int(found.get("restarts", 0)),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
