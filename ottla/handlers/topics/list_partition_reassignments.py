"""ListPartitionReassignments: the partitions that are being reassigned.

Behaviour: the answer has each selected partition that is being reassigned, with its replicas, and the replicas that are being added and
removed. Null selects all partitions.

Version notes: KIP-455.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.base.errors import ErrorCode
from ottla.controller.reassignment import is_moving
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(broker: Broker, request: RequestContext, body: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    if not is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE):
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    topics: dict[str, OngoingTopicReassignment] = {}
    for name, partition in _wanted(broker, body):
        if is_moving(partition):
            topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(_moving(partition))
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))


def _wanted(broker: Broker, body: ListPartitionReassignmentsRequest) -> Iterator[tuple[str, PartitionMetadata]]:
    if body.topics is None:
        for known in broker.metadata.topics():
            for partition in known.partitions:
                yield known.name, partition
        return
    for topic in body.topics:
        for index in topic.partition_indexes:
            found = broker.metadata.partition(topic.name, index)
            if found is not None:
                yield topic.name, found


def _moving(partition: PartitionMetadata) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
