"""ShareGroupDescribe: the state, members and assignments of share groups (KIP-932)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, nested, string, uuid


class ShareGroupDescribeRequest(Request):
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
    rack_id: str | None = string(nullable=True, default=None)
    member_epoch: int = i32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: Assignment = nested(Assignment)


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


class ShareGroupDescribeResponse(Response):
    throttle_time_ms: int = i32()
    groups: list[DescribedGroup] = array(DescribedGroup)
