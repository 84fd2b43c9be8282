"""ConsumerGroupHeartbeat: a member joins, remains in or quits a group; the coordinator makes the assignment (KIP-848)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, nested, string, uuid


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(i32)


class ConsumerGroupHeartbeatRequest(Request):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = i32()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    rebalance_timeout_ms: int = i32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable=True, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable=True, default=None)
    server_assignor: str | None = string(nullable=True, default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=True, default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True, default=None)
    member_epoch: int = i32()
    heartbeat_interval_ms: int = i32()
    assignment: Assignment | None = nested(Assignment, nullable=True, default=None)
