"""AlterPartitionReassignments: move partitions to other replicas.

Behaviour: gives partitions other replicas, or cancels a reassignment (null). A new order of the same replicas takes effect immediately. New
replicas are added first, and the old ones are removed when the new ones are in sync. Replicas on unknown brokers are refused, so a cluster
of one broker accepts only this broker.

Version notes: KIP-455. With version 1 clients can forbid a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.controller import api
from ottla.controller.reassignment import check_target, origin_of
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    broker: Broker, request: RequestContext, body: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse | Pending:
    if not is_allowed_on_cluster(broker, request, AclOperation.ALTER):
        return AlterPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    refused: list[api.PartitionResult] = []
    wanted: list[api.Reassignment] = []
    for topic in body.topics:
        for partition in topic.partitions:
            index, replicas = partition.partition_index, partition.replicas
            if not body.allow_replication_factor_change and _changes_factor(broker, topic.name, index, replicas):
                message = "The replication factor is changed but allow_replication_factor_change is set to false."
                refused.append(
                    api.PartitionResult(topic=topic.name, partition=index, error=ErrorCode.INVALID_REPLICATION_FACTOR, message=message)
                )
            else:
                wanted.append(api.Reassignment(topic=topic.name, partition=index, replicas=replicas))
    pending = Pending()

    def altered(results: list[api.PartitionResult]) -> None:
        pending.complete(_response(body, [*results, *refused]))

    broker.controller.alter_reassignments(wanted, altered)
    return pending


def _changes_factor(broker: Broker, topic: str, index: int, replicas: list[int] | None) -> bool:
    """Whether the number of replicas changes. False for invalid replicas, which the controller refuses with their own error."""
    partition = broker.metadata.partition(topic, index)
    if partition is None or replicas is None or len(replicas) == len(origin_of(partition)):
        return False
    try:
        check_target(replicas, broker.metadata.brokers)
    except ApiError:
        return False
    return True


def _response(body: AlterPartitionReassignmentsRequest, results: list[api.PartitionResult]) -> AlterPartitionReassignmentsResponse:
    topics: dict[str, ReassignableTopicResponse] = {}
    for result in results:
        topic = topics.setdefault(result.topic, ReassignableTopicResponse(name=result.topic))
        topic.partitions.append(
            ReassignablePartitionResponse(partition_index=result.partition, error_code=result.error, error_message=result.message)
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change, error_message=None, responses=list(topics.values())
    )
