"""AlterReplicaLogDirs: move replicas between the log directories of this broker.

Behaviour: each replica has its own result. It stays where it is if it is there already; LOG_DIR_NOT_FOUND for a directory that is none of
`log.dirs`, KAFKA_STORAGE_ERROR for one that is offline, and the partition's own error if no replica of it lives here.

Version notes: 2 is flexible.

Not done: moving records from one directory to another: OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.requests.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(broker: Broker, request: RequestContext, body: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    is_allowed = is_allowed_on_cluster(broker, request, AclOperation.ALTER)
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            result = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            for index in topic.partitions:
                code = _move(broker, directory.path, topic.name, index) if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(broker: Broker, path: str, topic: str, index: int) -> ErrorCode:
    directory = next((known for known in broker.partitions.log_directories() if known.path == path), None)
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not directory.is_online:
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = broker.partitions.get(topic, index)
    if partition is None:
        return broker.partitions.absence(topic, index)
    is_there = partition.log.directory.rpartition("/")[0] == path
    return ErrorCode.NONE if is_there else ErrorCode.OPERATION_NOT_ATTEMPTED
