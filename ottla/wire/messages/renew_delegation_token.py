"""RenewDelegationToken: extends the expiry time of a token."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i32, i64, octets


class RenewDelegationTokenRequest(Request):
    hmac: bytes = octets()
    renew_period_ms: int = i64()


class RenewDelegationTokenResponse(Response):
    error_code: int = i16()
    expiry_timestamp_ms: int = i64()
    throttle_time_ms: int = i32()
