"""The source's offsets as JSON: what Spark writes into a query's offset log, a line a source, and what the sink finds there again.

    {"group": "orders-etl", "offsets": {"orders": {"0": 120, "1": 98}}, "ids": {"orders": "q2bPEP9tQHe4bbvrJwmLLg"}}

The group is in it so that the sink recognizes the lines of its own pipeline among those of other sources. The topic ids are there because
offsets mean nothing in another topic of the same name; older checkpoints, and brokers older than Kafka 2.8, have none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.client import TopicPartition

_FIELDS = frozenset({"group", "offsets", "ids"})


class StoredOffsets(NamedTuple):
    """The offset of a source. `topic_ids` has those that are known, in Kafka's text form."""

    group: str
    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]


def write_offsets(group: str, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The offset of a source: the next record to read of each of its partitions, and the ids of their topics as far as they are known."""
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    ids = {topic: topic_ids[topic] for topic in topics if topic in topic_ids} if topic_ids else {}
    return {"group": group, "offsets": topics, **({"ids": ids} if ids else {})}


def read_offsets(value: Mapping[str, Any] | str) -> StoredOffsets | None:
    """What `write_offsets` wrote; None for the offset of another kind of source."""
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
        if not isinstance(found, Mapping) or not {"group", "offsets"} <= set(found) <= _FIELDS:
            return None
        offsets = {
            TopicPartition(topic, int(number)): int(offset)
            for topic, partitions in found["offsets"].items()
            for number, offset in partitions.items()
        }
        ids = {topic: str(topic_id) for topic, topic_id in found.get("ids", {}).items()}
    except (AttributeError, TypeError, ValueError):
        return None
    return StoredOffsets(str(found["group"]), offsets, ids)
