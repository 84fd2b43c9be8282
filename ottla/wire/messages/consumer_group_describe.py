"""ConsumerGroupDescribe: the state, members and assignments of consumer groups (KIP-848)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i8, i16, i32, nested, string, uuid


class ConsumerGroupDescribeRequest(Request):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(i32)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    member_id: str = string()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    member_epoch: int = i32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=True, default=None)
    assignment: Assignment = nested(Assignment)
    target_assignment: Assignment = nested(Assignment)
    member_type: int = i8(since=1, default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = i32()
    assignment_epoch: int = i32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = i32(default=-0x80000000)


class ConsumerGroupDescribeResponse(Response):
    throttle_time_ms: int = i32()
    groups: list[DescribedGroup] = array(DescribedGroup)
