"""ListConfigResources: the resources that DescribeConfigs can describe; version 0 lists only client metrics."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, string


class ListConfigResourcesRequest(Request):
    resource_types: list[int] = array(i8, since=1)


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = i8(since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    config_resources: list[ConfigResource] = array(ConfigResource)
