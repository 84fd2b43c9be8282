"""DescribeTopicPartitions: metadata of topics, page by page.

Behaviour: metadata of topics in the order of their names, or of all topics if the request names none. A page has at most
`response_partition_limit` partitions (and `max.request.partition.size.limit`), then a cursor that names the first partition of the next
page. A topic with an error is counted as one partition. A partition without a leader has leader -1 and no error (unlike in Metadata). Its
`last_known_elr` has the last leader, or a follower that has reported that the last leader lacks records. For other partitions
`last_known_elr` is empty.

Version notes: KIP-966.
"""

from __future__ import annotations

from ottla.base.cluster_metadata import NO_LEADER, PartitionMetadata, TopicMetadata
from ottla.base.errors import ErrorCode
from ottla.controller.topic_names import why_invalid
from ottla.handlers.authorized_operations import authorized_operations
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(broker: Broker, request: RequestContext, body: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    limit = broker.config.max_request_partition_size_limit
    left = max(1, min(body.response_partition_limit, limit))
    response = DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
    if _is_bad(body):
        response.topics = [
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name) for topic in body.topics[:limit]
        ]
        return response
    for name in _names(broker, body):
        first = body.cursor.partition_index if body.cursor is not None and body.cursor.topic_name == name else 0
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        topic = broker.metadata.topic(name)
        if not is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            if body.topics:
                left -= 1
                refused = DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
                response.topics.append(refused)
        elif topic is None:
            left -= 1
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            may = authorized_operations(broker, request, ResourceType.TOPIC, name)
            response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_authorized_operations=may))
        else:
            page = topic.partitions[first : first + left]
            left -= len(page)
            response.topics.append(_described(broker, request, topic, page))
            if first + len(page) < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=first + len(page))
                break
    return response


def _is_bad(body: DescribeTopicPartitionsRequest) -> bool:
    """Whether the cursor is invalid: its partition is negative, or its topic is not requested."""
    cursor = body.cursor
    if cursor is None:
        return False
    return cursor.partition_index < 0 or bool(body.topics and all(topic.name != cursor.topic_name for topic in body.topics))


def _names(broker: Broker, body: DescribeTopicPartitionsRequest) -> list[str]:
    """Returns the names of the topics from the cursor on. They are sorted, so that a cursor has the same meaning for the next page."""
    names = dict.fromkeys(topic.name for topic in body.topics) or dict.fromkeys(topic.name for topic in broker.metadata.topics())
    start = body.cursor.topic_name if body.cursor is not None else ""
    return sorted(name for name in names if name >= start)


def _described(
    broker: Broker, request: RequestContext, topic: TopicMetadata, page: tuple[PartitionMetadata, ...]
) -> DescribeTopicPartitionsResponseTopic:
    partitions = [
        DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=list(partition.eligible),
            last_known_elr=[] if partition.last_leader == NO_LEADER else [partition.last_leader],
            offline_replicas=list(partition.offline_replicas),
        )
        for partition in page
    ]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=authorized_operations(broker, request, ResourceType.TOPIC, topic.name),
    )
