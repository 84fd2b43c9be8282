"""DescribeTopicPartitions: metadata of topics page by page, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, nested, string, uuid


class TopicRequest(Struct):
    name: str = string()


class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = i32()


class DescribeTopicPartitionsRequest(Request):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = i32(default=2000)
    cursor: Cursor | None = nested(Cursor, nullable=True, default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = i16()
    partition_index: int = i32()
    leader_id: int = i32()
    leader_epoch: int = i32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(i32)
    isr_nodes: list[int] = array(i32)
    eligible_leader_replicas: list[int] | None = array(i32, nullable=True, default=None)
    last_known_elr: list[int] | None = array(i32, nullable=True, default=None)
    offline_replicas: list[int] = array(i32, ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = i16()
    name: str | None = string(nullable=True)
    topic_id: Uuid = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = i32(default=-0x80000000)


class DescribeTopicPartitionsResponse(Response):
    throttle_time_ms: int = i32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nested(Cursor, nullable=True, default=None)
