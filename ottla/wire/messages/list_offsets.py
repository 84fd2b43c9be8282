"""ListOffsets: the offset of a timestamp, or the earliest, latest, largest-timestamp or local-log offset of a partition."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, i64, string


class ListOffsetsPartition(Struct):
    partition_index: int = i32()
    current_leader_epoch: int = i32(since=4, default=-1, ignorable=True)
    timestamp: int = i64()


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request):
    replica_id: int = i32()
    isolation_level: int = i8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = i32(since=10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    timestamp: int = i64(default=-1)
    offset: int = i64(default=-1)
    leader_epoch: int = i32(since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response):
    throttle_time_ms: int = i32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
