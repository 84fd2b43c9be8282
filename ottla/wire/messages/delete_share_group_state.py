"""DeleteShareGroupState: deletes the stored state of share partitions."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, string, uuid


class PartitionData(Struct):
    partition: int = i32()


class DeleteStateData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Request):
    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Struct):
    partition: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Response):
    results: list[DeleteStateResult] = array(DeleteStateResult)
