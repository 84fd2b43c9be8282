"""SaslAuthenticate: one step of a SASL exchange."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i64, octets, string


class SaslAuthenticateRequest(Request):
    auth_bytes: bytes = octets()


class SaslAuthenticateResponse(Response):
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = i64(since=1, ignorable=True)
