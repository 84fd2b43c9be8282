"""DescribeShareGroupOffsets: the start offsets of share groups."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, i64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string()
    partitions: list[int] = array(i32)


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(DescribeShareGroupOffsetsRequestTopic, nullable=True)


class DescribeShareGroupOffsetsRequest(Request):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = i32()
    start_offset: int = i64()
    leader_epoch: int = i32()
    lag: int = i64(since=1, default=-1, ignorable=True)
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string()
    topic_id: Uuid = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)


class DescribeShareGroupOffsetsResponse(Response):
    throttle_time_ms: int = i32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
