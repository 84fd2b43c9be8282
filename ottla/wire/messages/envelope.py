"""Envelope: a broker forwards a client's request to the controller, with the client's principal."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, octets


class EnvelopeRequest(Request):
    request_data: bytes = octets()
    request_principal: bytes | None = octets(nullable=True)
    client_host_address: bytes = octets()


class EnvelopeResponse(Response):
    response_data: bytes | None = octets(nullable=True, default=None)
    error_code: int = i16()
