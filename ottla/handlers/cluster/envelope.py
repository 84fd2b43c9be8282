"""Envelope: another broker forwards a client's request to the controller.

Behaviour: clients get CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this request. A broker that is not the controller answers
NOT_CONTROLLER. The controller authorises the forwarded request for the client's principal and address, executes it, and returns its answer
unchanged. A forwarded request that is malformed or of an API that is not for the controller gets INVALID_REQUEST. A principal that cannot
be decoded gets PRINCIPAL_DESERIALIZATION_FAILURE.

The other half, `enveloped` and `answer_in`, is for the broker that forwards (`server/execution/forwarding.py`).

Version notes: KIP-590.

Not done: principals of other kinds than Kafka's default; not advertised.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.handlers.context import Broker, ConnectionInfo, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.security.principal import join_principal, split_principal
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import FRAME_SIZE_BYTES, load, read_response_header, write_request
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.principal import DefaultPrincipalData

CORRELATION_ID = 0
PRINCIPAL_VERSION = 0
VERSION_BYTES = 2


def handle(broker: Broker, request: RequestContext, body: EnvelopeRequest) -> EnvelopeResponse | Pending:
    if not is_broker(broker, request):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not broker.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    pending = Pending()

    def done(found: bytes | ErrorCode | Exception) -> None:
        if isinstance(found, Exception):
            pending.fail(found)
            return
        pending.complete(EnvelopeResponse(error_code=found) if isinstance(found, ErrorCode) else EnvelopeResponse(response_data=found))

    try:
        broker.forwarded.execute_forwarded(body.request_data, client_of(body, request.connection), done)
    except ApiError as refusal:
        return EnvelopeResponse(error_code=refusal.code)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    return pending


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
    """Returns the answer in an EnvelopeResponse, or None."""
    if envelope.error_code != ErrorCode.NONE or envelope.response_data is None:
        return None
    frame = memoryview(envelope.response_data)
    try:
        _, start = read_response_header(key, version, frame)
        return decoder(load(key)[1], version)(frame, start)[0]
    except WireError:
        return None


def address_bytes(host: str) -> bytes:
    """Returns the address in Kafka's form, 4 or 16 bytes, or no bytes if the client has no address."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""


def client_of(envelope: EnvelopeRequest, sender: ConnectionInfo) -> ConnectionInfo:
    """Returns the client of a forwarded request as a connection of its own, which is never a broker's. Raises `ApiError`."""
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
    """Returns the address as text, or an empty text if the bytes are no address."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return ""
