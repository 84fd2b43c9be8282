"""The source's offsets as JSON: what Spark writes into a query's offset log, a line a source, and what the sink finds there again.

    {"group": "orders-etl", "offsets": {"orders": {"0": 120, "1": 98}}}

The group is in it so that the sink recognizes the lines of its own pipeline among those of other sources.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.client import TopicPartition


def write_offsets(group: str, offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """The offset of a source: the next record to read of each of its partitions."""
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return {"group": group, "offsets": topics}


def read_offsets(value: Mapping[str, Any] | str) -> tuple[str, dict[TopicPartition, int]] | None:
    """The group and its offsets; None for the offset of another kind of source."""
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
        if not isinstance(found, Mapping) or set(found) != {"group", "offsets"}:
            return None
        offsets = {
            TopicPartition(topic, int(number)): int(offset)
            for topic, partitions in found["offsets"].items()
            for number, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        return None
    return str(found["group"]), offsets
