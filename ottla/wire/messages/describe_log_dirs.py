"""DescribeLogDirs: the size of partitions, and the free space, in each log directory of a broker."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, i64, string


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(i32)


class DescribeLogDirsRequest(Request):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=True)


class DescribeLogDirsPartition(Struct):
    partition_index: int = i32()
    partition_size: int = i64()
    offset_lag: int = i64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = i16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = i64(since=4, default=-1, ignorable=True)
    usable_bytes: int = i64(since=4, default=-1, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


class DescribeLogDirsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
