"""ControllerRegistration: a controller registers its listeners and features at the quorum's leader."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, string, u16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = u16()
    security_protocol: int = i16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = i16()
    max_supported_version: int = i16()


class ControllerRegistrationRequest(Request):
    controller_id: int = i32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class ControllerRegistrationResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
