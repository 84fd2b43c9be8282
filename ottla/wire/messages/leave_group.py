"""LeaveGroup: members leave a classic group; from version 3 on several at once, by member id or instance id."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, string


class MemberIdentity(Struct):
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=True, default=None)
    reason: str | None = string(since=5, nullable=True, default=None, ignorable=True)


class LeaveGroupRequest(Request):
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=True)
    error_code: int = i16(since=3)


class LeaveGroupResponse(Response):
    throttle_time_ms: int = i32(since=1, ignorable=True)
    error_code: int = i16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
