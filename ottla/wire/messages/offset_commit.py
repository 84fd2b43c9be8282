"""OffsetCommit: commits offsets of a group, for a member or for a client without membership. Version 10 names topics by id."""

from __future__ import annotations

from ottla.wire.schema import Message, Request, Response, Struct, Uuid, array, i16, i32, i64, is_flexible, string, uuid

TOPIC_IDS_SINCE = 10


class OffsetCommitRequestPartition(Struct):
    partition_index: int = i32()
    committed_offset: int = i64()
    committed_leader_epoch: int = i32(since=6, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=True)


class OffsetCommitRequestTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request):
    group_id: str = string()
    generation_id_or_member_epoch: int = i32(default=-1, ignorable=True)
    member_id: str = string(ignorable=True)
    group_instance_id: str | None = string(since=7, nullable=True, default=None)
    retention_time_ms: int = i64(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)

    @classmethod
    def usual(cls, version: int) -> list[Message]:
        """Returns the shape of a dynamic member's request for one partition without metadata."""
        partition = OffsetCommitRequestPartition(committed_metadata="")
        topic = OffsetCommitRequestTopic(name="topic" if version < TOPIC_IDS_SINCE else "", partitions=[partition])
        return [cls(group_id="group", member_id="member", topics=[topic])] if is_flexible(cls, version) else []


class OffsetCommitResponsePartition(Struct):
    partition_index: int = i32()
    error_code: int = i16()


class OffsetCommitResponseTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response):
    throttle_time_ms: int = i32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
