"""StageRecords: record batches are put aside on the leader of a partition, to be appended later by AttachRecords. An extension of ours.

Staged bytes are outside of the log and have no offsets. A chunk is one or more whole record batches (format 2, the transactional bit
set, producer id -1) and is known by the batch token, the attempt, the partition and its number, from 0 on; the same bytes may be sent
again. The answer has the topics and partitions of the request in its order, an entry for each.
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
