"""DescribeAcls: the access rules that match a filter."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, string


class DescribeAclsRequest(Request):
    resource_type_filter: int = i8()
    resource_name_filter: str | None = string(nullable=True)
    pattern_type_filter: int = i8(default=3)
    principal_filter: str | None = string(nullable=True)
    host_filter: str | None = string(nullable=True)
    operation: int = i8()
    permission_type: int = i8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = i8()
    permission_type: int = i8()


class DescribeAclsResource(Struct):
    resource_type: int = i8()
    resource_name: str = string()
    pattern_type: int = i8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
