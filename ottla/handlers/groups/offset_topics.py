"""Selects the topics and partitions in a request about offsets that exist and that the principal may read.

Adds the name of a topic given by id, and the id of a topic given by name, because the group's records have both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from ottla.base.errors import ErrorCode
from ottla.groups.commands import OffsetToCommit
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed
from ottla.security.acl import AclOperation, ResourceType

TopicT = TypeVar("TopicT", bound=Any)
"""A topic of a request: `name`, `topic_id`, and `partitions` with a `partition_index` each."""


def check_topics(
    broker: Broker, request: RequestContext, topics: list[TopicT], topic_class: type[TopicT], *, by_id: bool
) -> tuple[list[TopicT], list[tuple[TopicT, ErrorCode]]]:
    """Returns the accepted topics, and the refused ones with their errors. A topic is split if only some of its partitions exist."""
    passed: list[TopicT] = []
    refused: list[tuple[TopicT, ErrorCode]] = []
    for topic in topics:
        code, count = _look_up(broker, request, topic, by_id)
        if code:
            refused.append((topic, code))
            continue
        missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        if not missing:
            passed.append(topic)
            continue
        refused.append((_with(topic_class, topic, missing), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if len(missing) < len(topic.partitions):
            there = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
            passed.append(_with(topic_class, topic, there))
    return passed, refused


def _with(topic_class: type[TopicT], topic: TopicT, partitions: Collection[Any]) -> TopicT:
    divided: TopicT = topic_class(name=topic.name, topic_id=topic.topic_id, partitions=list(partitions))
    return divided


def _look_up(broker: Broker, request: RequestContext, topic: Any, by_id: bool) -> tuple[ErrorCode, int]:
    metadata = broker.metadata
    found = metadata.topic_by_id(topic.topic_id) if by_id else metadata.topic(topic.name)
    if by_id and found is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, 0
    name = topic.name if found is None else found.name
    if not is_allowed(broker, request, AclOperation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0
    topic.name, topic.topic_id = found.name, found.topic_id
    return ErrorCode.NONE, len(found.partitions)


def joined(results: Iterable[TopicT]) -> list[TopicT]:
    """Joins the results of each topic, as Kafka does, because clients that store results by topic would lose a part of a split topic."""
    topics: dict[tuple[str, bytes], TopicT] = {}
    for result in results:
        known = topics.setdefault((result.name, bytes(result.topic_id)), result)
        if known is not result:
            known.partitions += result.partitions
    return list(topics.values())


def offsets_of(topics: Iterable[Any]) -> list[OffsetToCommit]:
    return [
        OffsetToCommit(
            topic.name,
            topic.topic_id,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        for topic in topics
        for partition in topic.partitions
    ]
