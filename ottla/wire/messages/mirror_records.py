"""MirrorRecords: appends batches of another cluster's partitions to mirrored topics, with offsets and leader epochs. Ottla's extension.

`source` is the topic's `ottla.mirror.source`. `records` has whole batches, as the source has stored them. They follow the record before
`expected_end`, so they are appended only if the log ends there. Without records the request only asks for the bounds of the log. The answer
has an entry for each topic and partition, in the order of the request. `log_end_offset` is -1 if the partition is not led here.
`committed_end` is the high watermark.
"""

from __future__ import annotations

from ottla.wire.schema import Records, Request, Response, Struct, array, i16, i32, i64, records, string


class MirrorPartition(Struct):
    index: int = i32()
    expected_end: int = i64()
    source_log_start: int = i64(default=-1)
    records: Records = records(default=b"")


class MirrorTopic(Struct):
    name: str = string()
    source: str = string()
    partitions: list[MirrorPartition] = array(MirrorPartition)


class MirrorRecordsRequest(Request):
    timeout_ms: int = i32()
    topics: list[MirrorTopic] = array(MirrorTopic)


class MirrorPartitionResult(Struct):
    index: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    log_start_offset: int = i64(default=-1)
    log_end_offset: int = i64(default=-1)
    committed_end: int = i64(default=-1)
    last_stable_offset: int = i64(default=-1)
    leader_epoch: int = i32(default=-1)


class MirrorTopicResult(Struct):
    name: str = string()
    partitions: list[MirrorPartitionResult] = array(MirrorPartitionResult)


class MirrorRecordsResponse(Response):
    throttle_time_ms: int = i32()
    topics: list[MirrorTopicResult] = array(MirrorTopicResult)
