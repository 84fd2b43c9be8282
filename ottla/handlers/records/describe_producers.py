"""DescribeProducers: the producers of a partition and their open transactions.

Behaviour: followers answer too, with the producer state of their own log (KIP-664), so that tools can compare them with the leader.

Version notes: none.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import pieces_of
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.storage.producers import ProducerEntry
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    broker: Broker, request: RequestContext, body: DescribeProducersRequest
) -> Generator[None, None, DescribeProducersResponse]:
    topics = []
    for topic in body.topics:
        answer = TopicResponse(name=topic.name)
        for index in topic.partition_indexes:
            answer.partitions.append((yield from describe(broker, request, topic.name, index)))
        topics.append(answer)
    return DescribeProducersResponse(topics=topics)


def describe(broker: Broker, request: RequestContext, topic: str, index: int) -> Generator[None, None, PartitionResponse]:
    response = PartitionResponse(partition_index=index)
    try:
        require(broker, request, AclOperation.READ, ResourceType.TOPIC, topic)
        partition = broker.partitions.get(topic, index)
        if partition is None:
            known = broker.metadata.partition(topic, index) is not None
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not partition.is_online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    except ApiError as error:
        response.error_code = error.code
        response.error_message = error.message or None
        return response
    for piece in pieces_of(partition.log.producers.active()):
        response.active_producers += map(state_of, piece)
        yield
    return response


def state_of(producer: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_first_offset,
    )
