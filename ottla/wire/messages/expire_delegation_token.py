"""ExpireDelegationToken: removes a token, or changes its expiry time."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i32, i64, octets


class ExpireDelegationTokenRequest(Request):
    hmac: bytes = octets()
    expiry_time_period_ms: int = i64()


class ExpireDelegationTokenResponse(Response):
    error_code: int = i16()
    expiry_timestamp_ms: int = i64()
    throttle_time_ms: int = i32()
