"""UnregisterBroker: removes the registration of a broker that will not return."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i32, string


class UnregisterBrokerRequest(Request):
    broker_id: int = i32()


class UnregisterBrokerResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
