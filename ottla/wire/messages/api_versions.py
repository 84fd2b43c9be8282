"""ApiVersions: the APIs, versions and features that the broker serves. Its response header is never flexible.

`ottla_extensions` is Ottla's tagged field, which other brokers skip. It has the newest version of Ottla's extensions that the client knows.
Only with this field the broker lists the keys from `wire.apis.EXTENSIONS_SINCE` on, and serves them on the connection.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i8, i16, i32, i64, string

EXTENSIONS_TAG = 20000
NO_EXTENSIONS = -1
EXTENSIONS_VERSION = 0
"""The version of Ottla's extensions in this release."""


class ApiVersionsRequest(Request):
    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)
    cluster_id: str | None = string(since=5, nullable=True, default=None, ignorable=True)
    node_id: int = i32(since=5, default=-1, ignorable=True)
    ottla_extensions: int = i8(since=3, tag=EXTENSIONS_TAG, default=NO_EXTENSIONS, ignorable=True)


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
