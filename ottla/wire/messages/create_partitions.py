"""CreatePartitions: raise the number of partitions of topics."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(i32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = i32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable=True)


class CreatePartitionsRequest(Request):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = i32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)


class CreatePartitionsResponse(Response):
    throttle_time_ms: int = i32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
