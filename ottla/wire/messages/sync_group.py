"""SyncGroup: the leader of a classic group sends the assignments, and each member gets its own."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, octets, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = octets()


class SyncGroupRequest(Request):
    group_id: str = string()
    generation_id: int = i32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=True, default=None)
    protocol_type: str | None = string(since=5, nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=True, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response):
    throttle_time_ms: int = i32(since=1, ignorable=True)
    error_code: int = i16()
    protocol_type: str | None = string(since=5, nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=True, default=None, ignorable=True)
    assignment: bytes = octets()
