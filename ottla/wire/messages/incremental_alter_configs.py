"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings of a resource."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i8, i16, i32, string


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = i8()
    value: str | None = string(nullable=True)


class AlterConfigsResource(Struct):
    resource_type: int = i8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    resource_type: int = i8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: int = i32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
