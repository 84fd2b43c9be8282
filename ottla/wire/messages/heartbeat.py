"""Heartbeat: a member of a classic group extends its session, and gets REBALANCE_IN_PROGRESS when it has to join again."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i32, string


class HeartbeatRequest(Request):
    group_id: str = string()
    generation_id: int = i32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=True, default=None)


class HeartbeatResponse(Response):
    throttle_time_ms: int = i32(since=1, ignorable=True)
    error_code: int = i16()
