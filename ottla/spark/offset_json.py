"""The source's offsets as JSON: what Spark writes into a query's offset log, a line a source, and shows in a query's progress.

    {"orders": {"0": 120, "1": 98}, "@ottla": {"group": "orders-etl", "ids": {"orders": "q2bPEP9tQHe4bbvrJwmLLg"}}}

The topics stand as in the offsets of Spark's Kafka connector, so that what reads its progress reads ours. What we need besides is under a
key that no topic can have as its name. The group is in it so that the sink recognizes the lines of its own pipeline among those of other
sources. The topic ids are there because offsets mean nothing in another topic of the same name; brokers older than Kafka 2.8 have none.
The last offsets of partitions that are gone (`failOnDataLoss=false`) are under `gone`: if such a partition exists again, it is read from
that offset on.
Checkpoints of older versions have `{"group": ..., "offsets": {"orders": ...}, "ids": ...}`, without `ids` in the oldest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.client import TopicPartition

OWN_KEY = "@ottla"
"""What stands under it is no topic: the names of topics have no `@`."""

_OLD_FIELDS = frozenset({"group", "offsets", "ids"})


class StoredOffsets(NamedTuple):
    """The offset of a source. `topic_ids` has the known ids, in Kafka's text form. `gone` has the last offsets of partitions that do not
    exist any more."""

    group: str
    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]
    gone: Mapping[TopicPartition, int] = MappingProxyType({})


def write_offsets(
    group: str,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str] | None = None,
    gone: Mapping[TopicPartition, int] | None = None,
) -> dict[str, Any]:
    """The offset of a source: the next record to read of each of its partitions, and the ids of their topics as far as they are known."""
    topics, gone_topics = _by_topic(offsets), _by_topic(gone or {})
    ids = {topic: topic_ids[topic] for topic in sorted({*topics, *gone_topics}) if topic in topic_ids} if topic_ids else {}
    return {**topics, OWN_KEY: {"group": group, **({"ids": ids} if ids else {}), **({"gone": gone_topics} if gone_topics else {})}}


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def _by_partition(topics: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): int(offset) for topic, partitions in topics.items() for number, offset in partitions.items()
    }


def read_offsets(value: Mapping[str, Any] | str) -> StoredOffsets | None:
    """What `write_offsets` wrote, here or in an older version; None for the offset of another kind of source."""
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
        if OWN_KEY in found:
            topics, own = {topic: partitions for topic, partitions in found.items() if topic != OWN_KEY}, found[OWN_KEY]
        elif {"group", "offsets"} <= set(found) <= _OLD_FIELDS:
            topics, own = found["offsets"], found
        else:
            return None
        ids = {topic: str(topic_id) for topic, topic_id in own.get("ids", {}).items()}
        return StoredOffsets(str(own["group"]), _by_partition(topics), ids, _by_partition(own.get("gone", {})))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
