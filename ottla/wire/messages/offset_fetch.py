"""OffsetFetch: the committed offsets of a group, or from version 8 on of several. Version 10 names topics by id."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, i64, string, uuid


class OffsetFetchRequestTopic(Struct):
    name: str = string(until=7)
    partition_indexes: list[int] = array(i32, until=7)


class OffsetFetchRequestTopics(Struct):
    name: str = string(since=8, until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = array(i32, since=8)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string(since=8)
    member_id: str | None = string(since=9, nullable=True, default=None, ignorable=True)
    member_epoch: int = i32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, since=8, nullable=True)


class OffsetFetchRequest(Request):
    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = i32(until=7)
    committed_offset: int = i64(until=7)
    committed_leader_epoch: int = i32(since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = string(until=7, nullable=True)
    error_code: int = i16(until=7)


class OffsetFetchResponseTopic(Struct):
    name: str = string(until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = i32(since=8)
    committed_offset: int = i64(since=8)
    committed_leader_epoch: int = i32(since=8, default=-1, ignorable=True)
    metadata: str | None = string(since=8, nullable=True)
    error_code: int = i16(since=8)


class OffsetFetchResponseTopics(Struct):
    name: str = string(since=8, until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string(since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = i16(since=8)


class OffsetFetchResponse(Response):
    throttle_time_ms: int = i32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = i16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
