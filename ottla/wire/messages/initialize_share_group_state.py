"""InitializeShareGroupState: creates or resets the stored state of share partitions."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, i64, string, uuid


class PartitionData(Struct):
    partition: int = i32()
    state_epoch: int = i32()
    start_offset: int = i64()


class InitializeStateData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class InitializeShareGroupStateRequest(Request):
    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Struct):
    partition: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)


class InitializeStateResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class InitializeShareGroupStateResponse(Response):
    results: list[InitializeStateResult] = array(InitializeStateResult)
