"""SaslHandshake: the client chooses a SASL mechanism."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, array, i16, string


class SaslHandshakeRequest(Request, key=17, versions=(0, 1)):
    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions=(0, 1)):
    error_code: int = i16()
    mechanisms: list[str] = array(string)
