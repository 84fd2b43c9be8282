"""SaslHandshake: the client chooses a SASL mechanism.

Behaviour: ILLEGAL_SASL_STATE, as Kafka answers on a listener that does not authenticate by SASL.

Version notes: 1 announces SaslAuthenticate frames instead of raw ones (KIP-152).

Not done: SASL listeners.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(broker: Broker, request: RequestContext, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
