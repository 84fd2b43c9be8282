"""AlterPartitionReassignments: move partitions to other replicas, or cancel a move."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, string


class ReassignablePartition(Struct):
    partition_index: int = i32()
    replicas: list[int] | None = array(i32, nullable=True, default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request):
    timeout_ms: int = i32(default=60_000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response):
    throttle_time_ms: int = i32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
