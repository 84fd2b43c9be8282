"""GetTelemetrySubscriptions: the client metrics that the broker subscribes to (KIP-714)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Uuid, array, boolean, i8, i16, i32, string, uuid


class GetTelemetrySubscriptionsRequest(Request):
    client_instance_id: Uuid = uuid()


class GetTelemetrySubscriptionsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = i32()
    accepted_compression_types: list[int] = array(i8)
    push_interval_ms: int = i32()
    telemetry_max_bytes: int = i32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
