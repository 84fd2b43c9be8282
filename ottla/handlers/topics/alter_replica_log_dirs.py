"""AlterReplicaLogDirs: move replicas between the log directories of this broker (KIP-113).

Behaviour: each replica has its own result, which says whether the move has begun. DescribeLogDirs shows the progress. If the replica is
being moved already, another directory becomes the new target, and the current directory cancels the move. A directory that is not in
`log.dirs` gets LOG_DIR_NOT_FOUND, a cordoned one INVALID_REPLICA_ASSIGNMENT (KIP-1066). A directory that is offline or has too little free
space gets KAFKA_STORAGE_ERROR. If this broker has no such replica yet, the answer is REPLICA_NOT_AVAILABLE, and the replica will be created
in the named directory.

Version notes: 2 is flexible.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.errors import ErrorCode
from ottla.base.loop.turns import ITEMS_PER_STEP
from ottla.base.types import TopicPartition
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(
    broker: Broker, request: RequestContext, body: AlterReplicaLogDirsRequest
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    count = 0
    is_allowed = is_allowed_on_cluster(broker, request, AclOperation.ALTER)
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in body.dirs:
        refusal = broker.directory_moves.refusal(directory.path) if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for topic in directory.topics:
            result = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            for index in topic.partitions:
                code = refusal or _move(broker, directory.path, topic.name, index)
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
                count += 1
                if not count % ITEMS_PER_STEP:
                    yield
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(broker: Broker, path: str, topic: str, index: int) -> ErrorCode:
    partition = broker.partitions.get(topic, index)
    if partition is not None:
        return broker.directory_moves.move(partition, path)
    known, absence = broker.metadata.topic(topic), broker.partitions.absence(topic, index)
    is_known = known is not None and 0 <= index < len(known.partitions)
    if absence is ErrorCode.KAFKA_STORAGE_ERROR or not is_known:
        return absence
    return broker.directory_moves.prefer(TopicPartition(topic, index), path)
