"""ListOffsets: the offset that belongs to a time, or to a special time.

Behaviour: per partition, the first record at or after a timestamp, or a special one: -1 latest (high watermark, or last stable offset for
read_committed), -2 earliest, -3 the record with the largest timestamp, -4 earliest local, -5 latest tiered, -6 earliest pending upload.
A batch that would hold the answer but cannot be read is INVALID_RECORD. Unknown special timestamps and those a version does not know are
refused with UNSUPPORTED_VERSION. Nothing found: offset -1 and timestamp -1.

Version notes: 2 isolation level; 4 leader epochs (KIP-320); 7 max timestamp (KIP-734); 8 earliest local (KIP-405); 9 latest tiered
(KIP-1005); 11 earliest pending upload (KIP-1023).

Not done: nothing; there is no tiered storage, so -5 and -6 find nothing.
"""

from __future__ import annotations

from collections import Counter

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.requests.context import Broker, RequestContext
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.schema import VERSION_MAX

LEADER_EPOCHS_SINCE = 4
SPECIAL_SINCE = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9, -6: 11}
"""The special timestamps, and the version that first knows each."""


def handle(broker: Broker, request: RequestContext, body: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    for topic in body.topics:
        counts = Counter(asked.partition_index for asked in topic.partitions)
        repeated = {index for index, count in counts.items() if count > 1}
        results = [look_up(broker, request, body, topic.name, asked, repeated) for asked in topic.partitions]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return ListOffsetsResponse(topics=topics)


def look_up(
    broker: Broker, request: RequestContext, body: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, repeated: set[int]
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        require(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        if index in repeated:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"partition {index} of {topic!r} is named twice")
        if asked.timestamp < 0 and request.version < SPECIAL_SINCE.get(asked.timestamp, VERSION_MAX):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"special timestamp {asked.timestamp}")
        partition = broker.partitions.get(topic, index)
        if partition is None:
            raise ApiError(broker.partitions.absence(topic, index))
        timestamp, offset, leader_epoch = partition.list_offset(asked.timestamp, body.isolation_level, asked.current_leader_epoch)
    except ApiError as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
    except WireError:
        # A stored batch that its producer made wrong is not the client's fault.
        return ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.INVALID_RECORD)
    response = ListOffsetsPartitionResponse(partition_index=index, timestamp=timestamp, offset=offset)
    if request.version >= LEADER_EPOCHS_SINCE:
        response.leader_epoch = leader_epoch
    return response
