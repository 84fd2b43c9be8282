"""ReadShareGroupStateSummary: the start offsets and epochs of share partitions, without the records in flight."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, i64, string, uuid


class PartitionData(Struct):
    partition: int = i32()
    leader_epoch: int = i32()


class ReadStateSummaryData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateSummaryRequest(Request):
    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class PartitionResult(Struct):
    partition: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    state_epoch: int = i32()
    leader_epoch: int = i32()
    start_offset: int = i64()
    delivery_complete_count: int = i32(since=1, default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateSummaryResponse(Response):
    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
