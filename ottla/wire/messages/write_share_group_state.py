"""WriteShareGroupState: the leader of a share partition stores changes of its state."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i8, i16, i32, i64, string, uuid


class StateBatch(Struct):
    first_offset: int = i64()
    last_offset: int = i64()
    delivery_state: int = i8()
    delivery_count: int = i16()


class PartitionData(Struct):
    partition: int = i32()
    state_epoch: int = i32()
    leader_epoch: int = i32()
    start_offset: int = i64()
    delivery_complete_count: int = i32(since=1, default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


class WriteStateData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(Request):
    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Struct):
    partition: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)


class WriteStateResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(Response):
    results: list[WriteStateResult] = array(WriteStateResult)
