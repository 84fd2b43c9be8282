"""Envelopes round the requests of clients that one broker sends on to another (KIP-590): both halves, without I/O."""

from __future__ import annotations

import ipaddress
from typing import Any

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.requests.context import ConnectionInfo, RequestContext
from ottla.security.principal import join_principal, split_principal
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import FRAME_SIZE_BYTES, load, read_response_header, write_request
from ottla.wire.messages.envelope import EnvelopeRequest
from ottla.wire.messages.principal import DefaultPrincipalData

CORRELATION_ID = 0
PRINCIPAL_VERSION = 0
VERSION_BYTES = 2


def enveloped(key: int, version: int, request: RequestContext, body: Any) -> EnvelopeRequest:
    frame = write_request(key, version, CORRELATION_ID, request.client_id, encoder(load(key)[0], version)(body))
    kind, name = split_principal(request.connection.principal)
    principal = encoder(DefaultPrincipalData, PRINCIPAL_VERSION)(DefaultPrincipalData(type=kind, name=name))
    return EnvelopeRequest(
        request_data=frame[FRAME_SIZE_BYTES:],
        request_principal=PRINCIPAL_VERSION.to_bytes(VERSION_BYTES, "big") + principal,
        client_host_address=address_bytes(request.connection.host),
    )


def answer_in(key: int, version: int, envelope: Any) -> Any:
    """The answer that an EnvelopeResponse brings, None if it brings none."""
    if envelope.error_code != ErrorCode.NONE or envelope.response_data is None:
        return None
    frame = memoryview(envelope.response_data)
    try:
        _, start = read_response_header(key, version, frame)
        return decoder(load(key)[1], version)(frame, start)[0]
    except WireError:
        return None


def address_bytes(host: str) -> bytes:
    """The address as Kafka writes it: 4 or 16 bytes; empty where the client has none."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""


def client_of(envelope: EnvelopeRequest, sender: ConnectionInfo) -> ConnectionInfo:
    """The client of a forwarded request, as if it were connected here; never a broker. Raises `ApiError`."""
    data = memoryview(envelope.request_principal or b"")
    if bytes(data[:VERSION_BYTES]) != PRINCIPAL_VERSION.to_bytes(VERSION_BYTES, "big"):
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "an Envelope without a principal that is known here")
    try:
        principal, end = decoder(DefaultPrincipalData, PRINCIPAL_VERSION)(data, VERSION_BYTES)
    except WireError as error:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    if end != len(data):
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "bytes behind the principal of an Envelope")
    host = host_of(bytes(envelope.client_host_address))
    client = ConnectionInfo(
        identity=f"{host} by way of {sender.identity}",
        host=host,
        listener=sender.listener,
        principal=join_principal(principal.type, principal.name),
    )
    client.is_forwarded = True
    return client


def host_of(address: bytes) -> str:
    """The address in words; empty if it is none."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return ""
