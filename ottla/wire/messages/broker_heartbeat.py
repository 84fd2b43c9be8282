"""BrokerHeartbeat: a broker reports to the controller quorum that it is alive, and whether it wants to be fenced or to shut down."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Uuid, array, boolean, i16, i32, i64, uuid


class BrokerHeartbeatRequest(Request):
    broker_id: int = i32()
    broker_epoch: int = i64(default=-1)
    current_metadata_offset: int = i64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = array(uuid, since=1, tag=0)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, since=2, nullable=True, tag=1, default=None)


class BrokerHeartbeatResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
