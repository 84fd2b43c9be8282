"""OffsetForLeaderEpoch: the end of an epoch, for followers that truncate and consumers that look for lost records.

Behaviour: returns the largest epoch of the log up to the requested epoch, and its end offset (the log end for the current epoch). A
requested epoch that is newer than all epochs of the log gets -1 for both. For an older epoch than all epochs of the log, the answer has the
requested epoch and the start of the first epoch. Brokers may ask for any topic, clients for topics that they may DESCRIBE.

Version notes: 2 has the current leader epoch, for fencing (KIP-320). 3 has the replica's id. 4 changes only the encoding.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed, may_be_broker
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(broker: Broker, request: RequestContext, body: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    is_trusted = may_be_broker(broker, request)
    results = []
    for topic in body.topics:
        if is_trusted or is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic):
            partitions = [find_end(broker, topic.topic, asked) for asked in topic.partitions]
        else:
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partitions = [EpochEndOffset(partition=asked.partition, error_code=refused) for asked in topic.partitions]
        results.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=results)


def find_end(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.partitions.get(topic, asked.partition)
        if partition is None:
            raise ApiError(broker.partitions.absence(topic, asked.partition))
        epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch, asked.current_leader_epoch)
    except ApiError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
