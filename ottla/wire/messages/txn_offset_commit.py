"""TxnOffsetCommit: a producer commits offsets of a group in its transaction. Version 6 names topics by id."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, i64, string, uuid


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = i32()
    committed_offset: int = i64()
    committed_leader_epoch: int = i32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=True)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string(until=5, ignorable=True)
    topic_id: Uuid = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Request):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = i64()
    producer_epoch: int = i16()
    generation_id_or_member_epoch: int = i32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=True, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = i32()
    error_code: int = i16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string(until=5, ignorable=True)
    topic_id: Uuid = uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Response):
    throttle_time_ms: int = i32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
