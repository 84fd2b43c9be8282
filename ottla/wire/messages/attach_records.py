"""AttachRecords: appends staged chunks to their partitions in a producer's transaction. Ottla's extension.

The chunks of a partition are its manifest: the staged chunks in the order of their records. The first record gets `base_sequence`. A chunk
has `records` records in `length` bytes; `crc` is the CRC-32C of the staged bytes. The answer has an entry for each topic and partition, in
the order of the request. `base_offset` is -1 for a refused partition, or if an earlier request appended the first records. In version 0 the
partitions must have been added to the transaction before. In version 1 this request adds them (KIP-890, transactions v2).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, i64, string, u32, uuid


class StagedChunk(Struct):
    attempt_id: int = i64()
    chunk: int = i32()
    records: int = i32()
    length: int = i32()
    crc: int = u32()


class AttachPartition(Struct):
    index: int = i32()
    base_sequence: int = i32()
    chunks: list[StagedChunk] = array(StagedChunk)


class AttachTopic(Struct):
    name: str = string()
    partitions: list[AttachPartition] = array(AttachPartition)


class AttachRecordsRequest(Request):
    transactional_id: str = string()
    producer_id: int = i64()
    producer_epoch: int = i16()
    acks: int = i16()
    timeout_ms: int = i32()
    batch_token: Uuid = uuid()
    topics: list[AttachTopic] = array(AttachTopic)


class AttachPartitionResult(Struct):
    index: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    base_offset: int = i64(default=-1)


class AttachTopicResult(Struct):
    name: str = string()
    partitions: list[AttachPartitionResult] = array(AttachPartitionResult)


class AttachRecordsResponse(Response):
    throttle_time_ms: int = i32()
    topics: list[AttachTopicResult] = array(AttachTopicResult)
