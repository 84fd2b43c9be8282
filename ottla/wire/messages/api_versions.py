"""ApiVersions: which APIs and versions the broker serves, and its features. Its response header is never flexible."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, i64, string


class ApiVersionsRequest(Request):
    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)
    cluster_id: str | None = string(since=5, nullable=True, default=None, ignorable=True)
    node_id: int = i32(since=5, default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = i16()
    min_version: int = i16()
    max_version: int = i16()


class SupportedFeatureKey(Struct):
    name: str = string(since=3)
    min_version: int = i16(since=3)
    max_version: int = i16(since=3)


class FinalizedFeatureKey(Struct):
    name: str = string(since=3)
    max_version_level: int = i16(since=3)
    min_version_level: int = i16(since=3)


class ApiVersionsResponse(Response):
    error_code: int = i16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = i32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0, ignorable=True)
    finalized_features_epoch: int = i64(since=3, tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2, ignorable=True)
    zk_migration_ready: bool = boolean(since=3, tag=3, ignorable=True)
