"""Encodes and decodes the source's offsets as JSON. Spark stores this JSON in a query's offset log (a line per source) and shows it in its
progress.

    {"orders": {"0": 120, "1": 98}, "@ottla": {"group": "orders-etl", "ids": {"orders": "q2bPEP9tQHe4bbvrJwmLLg"}}}

The topics have the form of Spark's Kafka connector, so that tools for its progress can read ours. The key `@ottla`, which is not a valid
topic name, has additional data. The group lets the sink recognize the lines of its own pipeline among other sources. The topic ids are
stored because offsets are meaningless in another topic of the same name; brokers older than Kafka 2.8 have no ids. The field `gone` has the
last offsets of missing partitions (`failOnDataLoss=false`); a partition that exists again is read from that offset.

Checkpoints of older versions have `{"group": ..., "offsets": {"orders": ...}, "ids": ...}`, the oldest without `ids`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.client import TopicPartition

OWN_KEY = "@ottla"
"""The key of our additional data. It cannot be a topic, because names of topics have no `@`."""

_OLD_FIELDS = frozenset({"group", "offsets", "ids"})


class StoredOffsets(NamedTuple):
    """The offsets of a source. `topic_ids` has the known ids in Kafka's text form. `gone` has the last offsets of partitions that no longer
    exist."""

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
    """Encodes the offsets of a source (the next record of each partition), its group, the ids of these topics, and the offsets of missing
    partitions."""
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
    """Decodes the output of `write_offsets`, also of older versions; returns None for the offset of another kind of source."""
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
