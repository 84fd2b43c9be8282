"""WriteTxnMarkers: ends transactions in partitions that this broker leads, for their coordinator or an operator.

Behaviour: the principal needs CLUSTER_ACTION, or ALTER on the cluster (an operator who ends a hanging transaction). The answer is sent when
each partition has its committed marker or an error. A repeated marker is not an error. A commit marker in `__consumer_offsets` makes the
offsets of the transaction effective.

Version notes: 2 has the version of the transaction (KIP-890). In transactions v2 each transaction's marker has a new producer epoch.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster, may_be_broker
from ottla.security.acl import AclOperation
from ottla.transactions.metadata import Marker
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(broker: Broker, request: RequestContext, body: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Pending:
    is_allowed = may_write(broker, request)
    pending = Pending()
    response = WriteTxnMarkersResponse()
    writes: list[tuple[TopicPartition, Marker, WritableTxnMarkerPartitionResult]] = []
    for asked in body.markers:
        response.markers.append(lay_out(asked, writes))
    missing = len(writes)

    def written(result: WritableTxnMarkerPartitionResult, code: ErrorCode) -> None:
        nonlocal missing
        result.error_code = code
        missing -= 1
        if not missing:
            pending.complete(response)

    for partition, marker, result in writes:
        if is_allowed:
            broker.transactions.local_markers.write(partition, marker, lambda code, result=result: written(result, code))  # type: ignore[misc]
        else:
            written(result, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return response if pending.is_done or not writes else pending


def may_write(broker: Broker, request: RequestContext) -> bool:
    return may_be_broker(broker, request) or is_allowed_on_cluster(broker, request, AclOperation.ALTER)


def lay_out(
    asked: WritableTxnMarker, writes: list[tuple[TopicPartition, Marker, WritableTxnMarkerPartitionResult]]
) -> WritableTxnMarkerResult:
    """Returns the answer for one marker, without error codes yet, and the writes for it."""
    marker = Marker(asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, asked.transaction_result, asked.transaction_version)
    answer = WritableTxnMarkerResult(producer_id=asked.producer_id)
    for topic in asked.topics:
        results: list[WritableTxnMarkerPartitionResult] = []
        for index in topic.partition_indexes:
            result = WritableTxnMarkerPartitionResult(partition_index=index)
            results.append(result)
            writes.append((TopicPartition(topic.name, index), marker, result))
        answer.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
    return answer
