"""The headers before requests and responses. `framing.py` reads and writes them by hand; these serve tools and tests."""

from __future__ import annotations

from ottla.wire.schema import Data, i16, i32, string


class RequestHeader(Data, versions=(1, 2), flexible=2):
    request_api_key: int = i16()
    request_api_version: int = i16()
    correlation_id: int = i32()
    client_id: str | None = string(nullable=True, classic=True)


class ResponseHeader(Data, versions=(0, 1), flexible=1):
    correlation_id: int = i32()
