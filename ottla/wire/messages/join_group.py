"""JoinGroup: a member joins a classic group, and waits until the other members have joined."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, octets, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = octets()


class JoinGroupRequest(Request):
    group_id: str = string()
    session_timeout_ms: int = i32()
    rebalance_timeout_ms: int = i32(since=1, default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=True, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable=True, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=True, default=None, ignorable=True)
    metadata: bytes = octets()


class JoinGroupResponse(Response):
    throttle_time_ms: int = i32(since=2, ignorable=True)
    error_code: int = i16()
    generation_id: int = i32(default=-1)
    protocol_type: str | None = string(since=7, nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string(nullable_since=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
