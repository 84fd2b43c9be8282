"""CreateAcls: add access rules."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, string


class AclCreation(Struct):
    resource_type: int = i8()
    resource_name: str = string()
    resource_pattern_type: int = i8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = i8()
    permission_type: int = i8()


class CreateAclsRequest(Request):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = i16()
    error_message: str | None = string(nullable=True)


class CreateAclsResponse(Response):
    throttle_time_ms: int = i32()
    results: list[AclCreationResult] = array(AclCreationResult)
