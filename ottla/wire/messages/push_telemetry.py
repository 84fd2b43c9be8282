"""PushTelemetry: a client sends its metrics (KIP-714)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Uuid, boolean, i8, i16, i32, octets, uuid


class PushTelemetryRequest(Request):
    client_instance_id: Uuid = uuid()
    subscription_id: int = i32()
    terminating: bool = boolean()
    compression_type: int = i8()
    metrics: bytes = octets()


class PushTelemetryResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
