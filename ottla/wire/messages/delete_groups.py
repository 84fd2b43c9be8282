"""DeleteGroups: delete empty groups with their offsets."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, string


class DeleteGroupsRequest(Request):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = i16()
    error_message: str | None = string(since=3, nullable=True, default=None, ignorable=True)


class DeleteGroupsResponse(Response):
    throttle_time_ms: int = i32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
