"""SaslHandshake: the client chooses a SASL mechanism."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, array, i16, string


class SaslHandshakeRequest(Request):
    mechanism: str = string()


class SaslHandshakeResponse(Response):
    error_code: int = i16()
    mechanisms: list[str] = array(string)
