"""SaslAuthenticate: the client authenticates.

Behaviour: gives the token to the exchange that SaslHandshake began and answers with its token. A refusal is SASL_AUTHENTICATION_FAILED and
ends the connection (KIP-152). On a listener that does not authenticate by SASL, and after authentication, ILLEGAL_SASL_STATE.

Version notes: KIP-152. 1 the lifetime of a session (KIP-368).

Not done: no listener has a mechanism yet; lifetimes and re-authentication (KIP-368).
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.security.authentication import Outcome
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

AUTHENTICATED_ALREADY = "SaslAuthenticate request received after successful authentication"


def handle(broker: Broker, request: RequestContext, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse | Pending:
    connection = request.connection
    authentication = connection.authentication
    if authentication is None or connection.is_authenticated:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=AUTHENTICATED_ALREADY)
    pending = Pending()

    def stepped(code: ErrorCode, outcome: Outcome) -> None:
        if outcome.principal is not None and not code:
            connection.authenticated(outcome.principal)
        pending.complete(SaslAuthenticateResponse(error_code=code, error_message=outcome.error, auth_bytes=outcome.token))

    authentication.step(bytes(body.auth_bytes), stepped)
    return pending
