"""AlterPartition: a leader changes its in-sync set.

Behaviour: a leader proposes a new in-sync set for some of its partitions. The controller adopts a proposal if the leader has the newest
leader epoch and partition epoch, and every proposed member is eligible. Clients get CLUSTER_AUTHORIZATION_FAILED, because only brokers may
send this request.

Version notes: KIP-497. 2 topic ids. 3 broker epochs of the members (KIP-903): a member that has restarted is refused with
INELIGIBLE_REPLICA.

Not done: not advertised.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.controller import api
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    PartitionData,
)

EPOCHS_SINCE = 3
EPOCH_UNKNOWN = -1


def handle(broker: Broker, request: RequestContext, body: AlterPartitionRequest) -> AlterPartitionResponse | Pending:
    if not is_broker(broker, request):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    changes = [
        api.IsrChangeRequest(
            topic_id=topic.topic_id,
            partition=partition.partition_index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=_members(request, partition),
        )
        for topic in body.topics
        for partition in topic.partitions
    ]
    pending = Pending()
    broker.controller.alter_partition(
        body.broker_id, body.broker_epoch, changes, lambda error, results: pending.complete(_response(error, results))
    )
    return pending


def _members(request: RequestContext, partition: PartitionData) -> list[tuple[int, int]]:
    if request.version < EPOCHS_SINCE:
        return [(member, EPOCH_UNKNOWN) for member in partition.new_isr]
    return [(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs]


def _response(error: ErrorCode, results: list[api.PartitionResult]) -> AlterPartitionResponse:
    topics: dict[bytes, AlterPartitionResponseTopicData] = {}
    for result in results:
        topic = topics.setdefault(result.topic_id, AlterPartitionResponseTopicData(topic_id=result.topic_id))
        topic.partitions.append(
            AlterPartitionResponsePartitionData(
                partition_index=result.partition,
                error_code=result.error,
                leader_id=result.leader,
                leader_epoch=result.leader_epoch,
                isr=list(result.isr),
                partition_epoch=result.partition_epoch,
                eligible_replicas=list(result.eligible),
            )
        )
    return AlterPartitionResponse(error_code=error, topics=list(topics.values()))
