"""StageRecords: stores record batches on the leader of a partition, for a later AttachRecords. Ottla's extension.

Staged bytes are outside of the log and have no offsets. A chunk has one or more whole record batches (format 2, the transactional bit set,
producer id -1). Its key is the batch token, the attempt, the partition, and its number, which counts from 0. A chunk may be sent again with
the same bytes. The answer has an entry for each topic and partition, in the order of the request.
"""

from __future__ import annotations

from ottla.wire.schema import Records, Request, Response, Struct, Uuid, array, i16, i32, i64, records, string, uuid


class StagePartition(Struct):
    index: int = i32()
    chunk: int = i32()
    records: Records = records(default=b"")


class StageTopic(Struct):
    name: str = string()
    partitions: list[StagePartition] = array(StagePartition)


class StageRecordsRequest(Request):
    batch_token: Uuid = uuid()
    attempt_id: int = i64()
    topics: list[StageTopic] = array(StageTopic)


class StagePartitionResult(Struct):
    index: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)


class StageTopicResult(Struct):
    name: str = string()
    partitions: list[StagePartitionResult] = array(StagePartitionResult)


class StageRecordsResponse(Response):
    throttle_time_ms: int = i32()
    topics: list[StageTopicResult] = array(StageTopicResult)
