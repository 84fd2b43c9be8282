"""UnregisterController: removes the registration of a controller that will not return."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i32, string


class UnregisterControllerRequest(Request):
    controller_id: int = i32()


class UnregisterControllerResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
