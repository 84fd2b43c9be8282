"""ListPartitionReassignments: the partitions that are being reassigned."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, string


class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(i32)


class ListPartitionReassignmentsRequest(Request):
    timeout_ms: int = i32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(ListPartitionReassignmentsTopics, nullable=True, default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: int = i32()
    replicas: list[int] = array(i32)
    adding_replicas: list[int] = array(i32)
    removing_replicas: list[int] = array(i32)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
