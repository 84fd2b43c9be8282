"""DeleteRecords: raises the log start offset, so that everything before it is gone.

Behaviour: offset -1 stands for the high watermark; an offset above it is OFFSET_OUT_OF_RANGE. Whole segments below the new start are
removed by retention; the answer is the new low watermark. Internal topics and topics that are only compacted are refused with
POLICY_VIOLATION.

Version notes: 1 and 2 change only the encoding.

Not done: waiting for followers, which needs more than one broker.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import INTERNAL_TOPICS
from ottla.requests.context import Broker, RequestContext
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(broker: Broker, request: RequestContext, body: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[delete(broker, request, topic.name, asked.partition_index, asked.offset) for asked in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def delete(broker: Broker, request: RequestContext, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        require(broker, request, AclOperation.DELETE, ResourceType.TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of the internal topic {topic!r} are not deleted by clients")
        partition = broker.partitions.get(topic, index)
        if partition is None:
            raise ApiError(broker.partitions.absence(topic, index))
        if not partition.log.config.is_deleted:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{topic!r} has no cleanup.policy=delete")
        low_watermark = partition.require_leading().delete_records(offset)
    except ApiError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
