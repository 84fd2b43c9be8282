"""StopReplica: the controller stops replicas of a broker, and optionally deletes them.

The tagged fields from 20000 on are Ottla's. Only controllers of Ottla send them.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, i64, string, uuid


class StopReplicaPartitionV0(Struct):
    topic_name: str = string(until=0)
    partition_index: int = i32(until=0)


class StopReplicaTopicV1(Struct):
    name: str = string(since=1, until=2)
    partition_indexes: list[int] = array(i32, since=1, until=2)


class StopReplicaPartitionState(Struct):
    partition_index: int = i32(since=3)
    leader_epoch: int = i32(since=3, default=-1)
    delete_partition: bool = boolean(since=3)


class StopReplicaTopicState(Struct):
    topic_name: str = string(since=3)
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, since=3)
    topic_id: Uuid = uuid(since=4, tag=20000, ignorable=True)


class StopReplicaRequest(Request):
    controller_id: int = i32()
    is_kraft_controller: bool = boolean(since=4)
    controller_epoch: int = i32()
    broker_epoch: int = i64(since=1, default=-1, ignorable=True)
    delete_partitions: bool = boolean(until=2)
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, until=0)
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, since=1, until=2)
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, since=3)
    sequence: int = i64(since=4, tag=20000, default=-1, ignorable=True)
    part: int = i32(since=4, tag=20001, ignorable=True)
    has_more_parts: bool = boolean(since=4, tag=20002, ignorable=True)


class StopReplicaPartitionError(Struct):
    topic_name: str = string()
    partition_index: int = i32()
    error_code: int = i16()


class StopReplicaResponse(Response):
    error_code: int = i16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
