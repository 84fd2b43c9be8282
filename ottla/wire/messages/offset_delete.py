"""OffsetDelete: delete a group's committed offsets of topics it is not subscribed to."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, string


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = i32()


class OffsetDeleteRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request):
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = i32()
    error_code: int = i16()


class OffsetDeleteResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response):
    error_code: int = i16()
    throttle_time_ms: int = i32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
