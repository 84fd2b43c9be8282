"""OffsetForLeaderEpoch: the end offset of a leader epoch in the leader's log, for truncation by followers and checks by consumers."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, i64, string


class OffsetForLeaderPartition(Struct):
    partition: int = i32()
    current_leader_epoch: int = i32(default=-1, ignorable=True)
    leader_epoch: int = i32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request):
    replica_id: int = i32(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = i16()
    partition: int = i32()
    leader_epoch: int = i32(default=-1, ignorable=True)
    end_offset: int = i64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: int = i32(ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
