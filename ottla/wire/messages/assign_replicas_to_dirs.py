"""AssignReplicasToDirs: a broker reports the log directories of its replicas to the controller (KIP-858)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, i64, uuid


class PartitionData(Struct):
    partition_index: int = i32()


class TopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DirectoryData(Struct):
    id: Uuid = uuid()
    topics: list[TopicData] = array(TopicData)


class AssignReplicasToDirsRequest(Request):
    broker_id: int = i32()
    broker_epoch: int = i64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[AssignReplicasToDirsResponsePartitionData] = array(AssignReplicasToDirsResponsePartitionData)


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: Uuid = uuid()
    topics: list[AssignReplicasToDirsResponseTopicData] = array(AssignReplicasToDirsResponseTopicData)


class AssignReplicasToDirsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    directories: list[AssignReplicasToDirsResponseDirectoryData] = array(AssignReplicasToDirsResponseDirectoryData)
