"""UnregisterController: forget a controller that will not come back."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i32, string


class UnregisterControllerRequest(Request, key=94, versions=(0, 0), flexible=0):
    controller_id: int = i32()


class UnregisterControllerResponse(Response, key=94, versions=(0, 0), flexible=0):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
