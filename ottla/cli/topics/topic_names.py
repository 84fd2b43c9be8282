"""Finds the topics and partitions that a command line names. The error about an unknown name suggests a similar one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, UsageError, flag, option
from ottla.client.blocking.cluster import Cluster, nearest_hint


def named_partitions(cluster: Cluster, topic: str, numbers: Sequence[int] | None) -> list[TopicPartition]:
    """Returns the partitions of a topic with these numbers, or all partitions if no numbers are given. Raises `ApiError` if a partition
    does not exist.
    """
    there = cluster.partitions(topic)
    if missing := [number for number in numbers or () if number not in there]:
        message = f"topic {topic!r} has {counted(len(there), 'partition')}, so no partition {missing[0]}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return [TopicPartition(topic, number) for number in numbers or there]


def parse_replica_assignment(text: str | None) -> list[list[int]] | None:
    """Returns the brokers of each partition: `0:1,1:2` puts partition 0 on brokers 0 and 1, and partition 1 on 1 and 2. Returns None
    without text. Raises UsageError for an invalid assignment."""
    if not text:
        return None
    try:
        placed = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--replica-assignment {text!r} is not BROKER:BROKER,BROKER:BROKER...") from None
    for number, brokers in enumerate(placed):
        if len(set(brokers)) != len(brokers):
            raise UsageError(f"--replica-assignment names a broker twice for partition {number}")
        if len(brokers) != len(placed[0]):
            raise UsageError("--replica-assignment gives partitions different numbers of replicas")
    return placed


TOPIC_FILTER = (
    option("names", nargs="*", metavar="TOPIC", help="topics by name"),
    option("--topic", action="append", metavar="REGEX", help="topics by regular expression; lists with commas work too"),
    option("--topic-id", action="append", metavar="ID", help="a topic by its id"),
    flag("--exclude-internal", help="leave out internal topics"),
)
"""Options of commands that take several topics."""


def pattern_of(text: str) -> re.Pattern[str]:
    """Compiles a regular expression as Kafka's tools do: commas separate alternatives, outer quotes are removed. Raises UsageError."""
    try:
        return re.compile("|".join(part.strip() for part in text.strip("\"'").split(",") if part.strip()))
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}") from None


def chosen_topics(cluster: Cluster, args: Args, *, is_optional: bool = False) -> list[Any]:
    """Returns the metadata of the named topics, or of all topics if none is named, by name. Raises ApiError if a name, pattern or id
    matches no topic, unless `is_optional`."""
    answer = cluster.refresh(None)
    topics = {topic.name: topic for topic in answer.topics if topic.name is not None and not topic.error_code}
    if args.exclude_internal:
        topics = {name: topic for name, topic in topics.items() if not (topic.is_internal or name.startswith("__"))}
    chosen: set[str] = set()
    for name in args.names:
        if name in topics:
            chosen.add(name)
        elif not is_optional:
            raise _not_found(name, topics)
    for text in args.topic or []:
        pattern = pattern_of(text)
        matching = {name for name in topics if pattern.fullmatch(name)}
        if not matching and not is_optional:
            raise _not_found(text, topics)
        chosen |= matching
    for text in args.topic_id or []:
        chosen |= _by_id(text, topics, is_optional=is_optional)
    return [topics[name] for name in sorted(chosen if names_topics(args) else topics)]


def names_topics(args: Args) -> bool:
    return bool(args.names or args.topic or args.topic_id)


def _by_id(text: str, topics: dict[str, Any], *, is_optional: bool) -> set[str]:
    from ottla.base.uuids import uuid_from_text

    try:
        wanted = uuid_from_text(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    found = {name for name, topic in topics.items() if topic.topic_id == wanted}
    if not found and not is_optional:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {text}")
    return found


def _not_found(name: str, topics: dict[str, Any]) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} not found{nearest_hint(name, topics)}")


ONE_TOPIC = (
    option("name", nargs="?", metavar="TOPIC", help="the topic"),
    option("--topic", metavar="NAME", help="the topic, as an option"),
)


def one_topic(args: Args, *, is_needed: bool = True) -> str:
    """Returns the topic that is named by position or option. Raises UsageError for two different names, and with `is_needed` if no topic is
    named.
    """
    if args.name and args.topic and args.name != args.topic:
        raise UsageError(f"two topics are named, {args.name!r} and {args.topic!r}")
    name: str = args.name or args.topic or ""
    if is_needed and not name:
        raise UsageError("name a topic")
    return name
