"""FindCoordinator: the broker that coordinates a group, a transactional id or a share partition; from version 4 on for several keys."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, string


class FindCoordinatorRequest(Request):
    key: str = string(until=3)
    key_type: int = i8(since=1)
    coordinator_keys: list[str] = array(string, since=4)


class Coordinator(Struct):
    key: str = string(since=4)
    node_id: int = i32(since=4)
    host: str = string(since=4)
    port: int = i32(since=4)
    error_code: int = i16(since=4)
    error_message: str | None = string(since=4, nullable=True, ignorable=True)


class FindCoordinatorResponse(Response):
    throttle_time_ms: int = i32(since=1, ignorable=True)
    error_code: int = i16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=True, ignorable=True)
    node_id: int = i32(until=3)
    host: str = string(until=3)
    port: int = i32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
