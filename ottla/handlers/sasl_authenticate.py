"""SaslAuthenticate: the client authenticates.

Behaviour: gives the token to the exchange that SaslHandshake began and answers with its token. A refusal is SASL_AUTHENTICATION_FAILED and
ends the connection (KIP-152). On a listener that does not authenticate by SASL, and after authentication, ILLEGAL_SASL_STATE. What wants to
be known for a broker and is not stays a client.

Version notes: KIP-152. 1 the lifetime of a session (KIP-368).

Not done: no listener has a mechanism yet; lifetimes and re-authentication (KIP-368).
"""

from __future__ import annotations

import logging

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, ConnectionInfo, Pending, RequestContext
from ottla.security.authentication import Exchange, Outcome
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

log = logging.getLogger("ottla.security")

AUTHENTICATED_ALREADY = "SaslAuthenticate request received after successful authentication"


def handle(broker: Broker, request: RequestContext, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse | Pending:
    connection = request.connection
    if connection.peer_exchange is not None:
        return _prove(connection, connection.peer_exchange, bytes(body.auth_bytes))
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


def _prove(connection: ConnectionInfo, exchange: Exchange, token: bytes) -> Pending:
    """A step by which the other end proves to be a broker."""
    pending = Pending()

    def stepped(outcome: Outcome) -> None:
        if outcome.error is not None or outcome.principal is not None:
            connection.peer_exchange = None
        if outcome.error is not None:
            log.warning("%s is not taken for a broker: %s", connection.identity, outcome.error)
            if connection.authentication is not None and not connection.is_authenticated:
                connection.authentication.refuse()
        elif outcome.principal is not None and not connection.is_authenticated:
            connection.authenticated(outcome.principal)
        code = ErrorCode.NONE if outcome.error is None else ErrorCode.SASL_AUTHENTICATION_FAILED
        pending.complete(SaslAuthenticateResponse(error_code=code, error_message=outcome.error, auth_bytes=outcome.token))

    exchange.step(token, stepped)
    return pending
