"""Envelope: another broker forwards the request of a client of its own to the controller.

Behaviour: only brokers may send it: CLUSTER_AUTHORIZATION_FAILED for clients. A broker that is not the controller answers NOT_CONTROLLER.
Otherwise the request inside is authorised for the client's principal and address, executed, and its answer sent back as it is. Requests
that are not for the controller, or are malformed, are INVALID_REQUEST; a principal that cannot be read is
PRINCIPAL_DESERIALIZATION_FAILURE.

Version notes: KIP-590.

Not done: principals of other kinds than Kafka's default; not advertised.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.envelopes import client_of
from ottla.requests.rights import is_broker
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


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
