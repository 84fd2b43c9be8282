"""The partitions that `--topic t`, `--topic t:0,1` and `--all-topics` select for a group."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import UsageError
from ottla.client.blocking.cluster import Cluster


def parse_scope(texts: Sequence[str]) -> dict[str, list[int] | None]:
    """Topics with the partitions named, None for all of them. A topic's name has no colon, so the last one separates."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise UsageError(f"--topic {text!r} names no topic")
        if not colon:
            found[topic] = None
            continue
        try:
            wanted = [int(number) for number in numbers.split(",")]
        except ValueError:
            raise UsageError(f"--topic {text!r} is not TOPIC:PARTITION,PARTITION...") from None
        before = found.get(topic, [])
        found[topic] = None if before is None else sorted({*before, *wanted})
    return found


def scope_partitions(
    cluster: Cluster, topics: Sequence[str] | None, is_all: bool, committed: Sequence[TopicPartition]
) -> list[TopicPartition]:
    """The partitions of a scope; all of them exist."""
    if is_all and topics:
        raise UsageError("either --topic or --all-topics, not both")
    if is_all:
        return sorted(committed)
    partitions = []
    for topic, numbers in parse_scope(topics or []).items():
        there = cluster.partitions(topic)
        for number in numbers or []:
            if number not in there:
                message = f"topic {topic!r} has {counted(len(there), 'partition')}, so no partition {number}"
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        partitions += [TopicPartition(topic, number) for number in (there if numbers is None else numbers)]
    return sorted(partitions)
