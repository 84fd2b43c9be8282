"""A broker's own requests to a controller elsewhere: encodes values of `controller.api`, and decodes the answers.

Answers of CreateTopics are matched with the request: unrequested results are dropped, and missing ones become UNKNOWN_SERVER_ERROR. Results
of AlterPartition are checked by `isr_changes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.cluster_metadata import ClusterMetadata
from ottla.base.errors import ErrorCode, error_code
from ottla.controller.api import ConfigRequest, ConfigResult, IsrChangeRequest, NewTopic, PartitionResult, TopicResult
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, BrokerState, PartitionData, TopicData
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def alter_partition_request(broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest]) -> AlterPartitionRequest:
    topics: dict[bytes, TopicData] = {}
    for change in changes:
        topic = topics.setdefault(change.topic_id, TopicData(topic_id=change.topic_id))
        topic.partitions.append(
            PartitionData(
                partition_index=change.partition,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
                new_isr_with_epochs=[BrokerState(broker_id=member, broker_epoch=epoch) for member, epoch in change.isr],
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def partition_results(response: AlterPartitionResponse, metadata: ClusterMetadata) -> list[PartitionResult]:
    found = []
    for topic in response.topics:
        known = metadata.topic_by_id(topic.topic_id)
        for partition in topic.partitions:
            found.append(
                PartitionResult(
                    topic="" if known is None else known.name,
                    topic_id=topic.topic_id,
                    partition=partition.partition_index,
                    error=error_code(partition.error_code),
                    leader=partition.leader_id,
                    leader_epoch=partition.leader_epoch,
                    isr=tuple(partition.isr),
                    partition_epoch=partition.partition_epoch,
                    eligible=tuple(partition.eligible_replicas),
                )
            )
    return found


def create_topics_request(topics: Sequence[NewTopic], validate_only: bool, timeout_ms: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(map(_creatable, topics)), validate_only=validate_only, timeout_ms=timeout_ms)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
        for index, replicas in (topic.assignments or {}).items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def alter_configs_request(requests: Sequence[ConfigRequest], validate_only: bool) -> IncrementalAlterConfigsRequest:
    resources = []
    for request in requests:
        configs = [AlterableConfig(name=entry.name, config_operation=entry.operation, value=entry.value) for entry in request.entries]
        resources.append(AlterConfigsResource(resource_type=request.resource_type, resource_name=request.name, configs=configs))
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def config_results(response: IncrementalAlterConfigsResponse) -> list[ConfigResult]:
    return [
        ConfigResult(
            resource_type=one.resource_type, name=one.resource_name, error=error_code(one.error_code), message=one.error_message
        )
        for one in response.responses
    ]  # fmt: skip


def refusal_of_all_topics(response: CreateTopicsResponse) -> int:
    return _refusal_of_all({topic.error_code for topic in response.topics})


def refusal_of_all_configs(response: IncrementalAlterConfigsResponse) -> int:
    return _refusal_of_all({one.error_code for one in response.responses})


def _refusal_of_all(codes: set[int]) -> int:
    """Returns the code of the answer as a whole: NOT_CONTROLLER if a broker that is not the controller refuses every item."""
    return ErrorCode.NOT_CONTROLLER if codes == {ErrorCode.NOT_CONTROLLER} else ErrorCode.NONE


def topic_results(response: CreateTopicsResponse, topics: Sequence[NewTopic]) -> list[TopicResult]:
    """Returns one result for each requested topic, in the order of the request."""
    answered = {topic.name: topic for topic in response.topics}
    results = []
    for wanted in topics:
        topic = answered.get(wanted.name)
        if topic is None:
            results.append(TopicResult(name=wanted.name, error=ErrorCode.UNKNOWN_SERVER_ERROR, message="The controller did not answer."))
            continue
        results.append(
            TopicResult(
                name=topic.name,
                error=error_code(topic.error_code),
                message=topic.error_message,
                topic_id=topic.topic_id,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
            )
        )
    return results
