"""ReadShareGroupState: the leader of a share partition loads its stored state."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i8, i16, i32, i64, string, uuid


class PartitionData(Struct):
    partition: int = i32()
    leader_epoch: int = i32()


class ReadStateData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(Request):
    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Struct):
    first_offset: int = i64()
    last_offset: int = i64()
    delivery_state: int = i8()
    delivery_count: int = i16()


class PartitionResult(Struct):
    partition: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    state_epoch: int = i32()
    start_offset: int = i64()
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Response):
    results: list[ReadStateResult] = array(ReadStateResult)
