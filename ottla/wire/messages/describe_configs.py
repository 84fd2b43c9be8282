"""DescribeConfigs: the settings of topics, brokers, groups and client metrics, with the source of each value."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i8, i16, i32, string


class DescribeConfigsResource(Struct):
    resource_type: int = i8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable=True)


class DescribeConfigsRequest(Request):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = string(nullable=True)
    source: int = i8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable=True)
    read_only: bool = boolean()
    config_source: int = i8(default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, ignorable=True)
    config_type: int = i8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable=True, ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    resource_type: int = i8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response):
    throttle_time_ms: int = i32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
