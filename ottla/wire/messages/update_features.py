"""UpdateFeatures: raise or lower finalised feature levels."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i8, i16, i32, string


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = i16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = i8(since=1, default=1)


class UpdateFeaturesRequest(Request):
    timeout_ms: int = i32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)


class UpdateFeaturesResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
