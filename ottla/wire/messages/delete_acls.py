"""DeleteAcls: remove the access rules that match filters."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, string


class DeleteAclsFilter(Struct):
    resource_type_filter: int = i8()
    resource_name_filter: str | None = string(nullable=True)
    pattern_type_filter: int = i8(default=3)
    principal_filter: str | None = string(nullable=True)
    host_filter: str | None = string(nullable=True)
    operation: int = i8()
    permission_type: int = i8()


class DeleteAclsRequest(Request):
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    resource_type: int = i8()
    resource_name: str = string()
    pattern_type: int = i8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = i8()
    permission_type: int = i8()


class DeleteAclsFilterResult(Struct):
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Response):
    throttle_time_ms: int = i32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
