"""SaslAuthenticate: the client authenticates.

Behaviour: ILLEGAL_SASL_STATE, as Kafka answers on a listener that does not authenticate by SASL.

Version notes: KIP-152. 1 the lifetime of a session (KIP-368).

Not done: SASL listeners.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(broker: Broker, request: RequestContext, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslAuthenticate request received after successful authentication"
    )
