"""DeleteRecords: raise the log start offset of partitions."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, i64, string


class DeleteRecordsPartition(Struct):
    partition_index: int = i32()
    offset: int = i64()


class DeleteRecordsTopic(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = i32()


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = i32()
    low_watermark: int = i64()
    error_code: int = i16()


class DeleteRecordsTopicResult(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Response):
    throttle_time_ms: int = i32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
