"""ListGroups: the groups that this broker coordinates, by state and type."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, string


class ListGroupsRequest(Request):
    states_filter: list[str] = array(string, since=4)
    types_filter: list[str] = array(string, since=5)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


class ListGroupsResponse(Response):
    throttle_time_ms: int = i32(since=1, ignorable=True)
    error_code: int = i16()
    groups: list[ListedGroup] = array(ListedGroup)
