"""OffsetDelete: an operator removes a group's offsets for some partitions.

Behaviour: a classic group whose members are not consumers gets NON_EMPTY_GROUP. Otherwise each partition has its own result:
GROUP_SUBSCRIBED_TO_TOPIC while a member subscribes to the topic, UNKNOWN_TOPIC_OR_PARTITION for a partition that does not exist. A
partition without an offset is not an error.

Version notes: one version (KIP-496).
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import DeletedOffsets
from ottla.groups.commands import DeleteOffsets, TopicPartitions
from ottla.groups.offsets.delete import delete_offsets
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import run
from ottla.handlers.rights import is_allowed, require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(broker: Broker, request: RequestContext, body: OffsetDeleteRequest) -> Any:
    pending = Pending()
    refused: list[OffsetDeleteResponseTopic] = []

    def answer(deleted: DeletedOffsets) -> None:
        topics = [_outcome(topic, code) for topic, code in zip(kept, deleted.topics, strict=False)]
        if not deleted.error:
            _join(topics, refused)
        pending.complete(OffsetDeleteResponse(error_code=deleted.error, topics=topics))

    try:
        require(broker, request, AclOperation.DELETE, ResourceType.GROUP, body.group_id)
        if not body.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        kept = _check_topics(broker, request, body.topics, refused)
        topics = [TopicPartitions(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in kept]
        command = DeleteOffsets(group_id=body.group_id, topics=topics)
        run(broker, body.group_id, lambda shard, reply, _now: delete_offsets(shard, command, reply), answer)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return pending


def _check_topics(
    broker: Broker, request: RequestContext, topics: list[OffsetDeleteRequestTopic], refused: list[OffsetDeleteResponseTopic]
) -> list[OffsetDeleteRequestTopic]:
    kept = []
    for topic in topics:
        if not is_allowed(broker, request, AclOperation.READ, ResourceType.TOPIC, topic.name):
            refused.append(_outcome(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        known = broker.metadata.topic(topic.name)
        count = len(known.partitions) if known is not None else 0
        missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        if missing:
            absent = OffsetDeleteRequestTopic(name=topic.name, partitions=missing)
            refused.append(_outcome(absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    return kept


def _join(topics: list[OffsetDeleteResponseTopic], refused: list[OffsetDeleteResponseTopic]) -> None:
    """Joins the results of each topic, because clients expect a topic only once in an answer."""
    known = {topic.name: topic for topic in topics}
    for topic in refused:
        if topic.name in known:
            known[topic.name].partitions += topic.partitions
        else:
            topics.append(topic)


def _outcome(topic: OffsetDeleteRequestTopic, code: ErrorCode) -> OffsetDeleteResponseTopic:
    results = [OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code) for partition in topic.partitions]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=results)
