"""DescribeGroups: the state and members of classic groups."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, octets, string


class DescribeGroupsRequest(Request):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=True, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


class DescribedGroup(Struct):
    error_code: int = i16()
    error_message: str | None = string(since=6, nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = i32(since=3, default=-0x80000000)


class DescribeGroupsResponse(Response):
    throttle_time_ms: int = i32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
