"""BrokerRegistration: a starting broker registers at the controller quorum."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, i64, string, u16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = u16()
    security_protocol: int = i16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = i16()
    max_supported_version: int = i16()


class BrokerRegistrationRequest(Request):
    broker_id: int = i32()
    cluster_id: str = string()
    incarnation_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable=True)
    is_migrating_zk_broker: bool = boolean(since=1)
    log_dirs: list[Uuid] = array(uuid, since=2, ignorable=True)
    previous_broker_epoch: int = i64(since=3, default=-1, ignorable=True)


class BrokerRegistrationResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    broker_epoch: int = i64(default=-1)
