"""CreateDelegationToken: makes a token that lets other clients act for its owner."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, i64, octets, string


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Request):
    owner_principal_type: str | None = string(since=3, nullable=True)
    owner_principal_name: str | None = string(since=3, nullable=True)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = i64()


class CreateDelegationTokenResponse(Response):
    error_code: int = i16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3, ignorable=True)
    token_requester_principal_name: str = string(since=3, ignorable=True)
    issue_timestamp_ms: int = i64()
    expiry_timestamp_ms: int = i64()
    max_timestamp_ms: int = i64()
    token_id: str = string()
    hmac: bytes = octets()
    throttle_time_ms: int = i32()
