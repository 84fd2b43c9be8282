"""SaslAuthenticate: the client authenticates.

Behaviour: passes the client's token to the exchange that SaslHandshake began, and answers with the token of the exchange. If the login is
refused, the broker waits for `connection.failed.authentication.delay.ms`, answers SASL_AUTHENTICATION_FAILED and closes the connection
(KIP-152). The answer is ILLEGAL_SASL_STATE on a listener without SASL, before SaslHandshake, and after authentication without another
SaslHandshake. If sessions are limited, the answer has the lifetime of the session. After this time only requests that authenticate the
client again are accepted. If a broker cannot prove its identity (`security/cluster_identity.py`), it gets SASL_AUTHENTICATION_FAILED and is
not treated as a broker.

Version notes: KIP-152. 1 has the lifetime of the session (KIP-368).
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, ConnectionInfo, Pending, RequestContext
from ottla.security.authentication import Authentication, Exchange, StepResult
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

AUTHENTICATED_ALREADY = "SaslAuthenticate request received after successful authentication"


def handle(broker: Broker, request: RequestContext, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse | Pending:
    connection = request.connection
    if connection.peer_exchange is not None:
        return _prove(broker, connection, connection.peer_exchange, bytes(body.auth_bytes))
    authentication = connection.authentication
    if authentication is None or connection.is_authenticated:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=AUTHENTICATED_ALREADY)
    pending = Pending()

    def stepped(code: ErrorCode, outcome: StepResult) -> None:
        answer = SaslAuthenticateResponse(error_code=code, error_message=outcome.error, auth_bytes=outcome.token)
        if code:
            _refuse(broker, connection, authentication, outcome, pending, answer)
            return
        if outcome.principal is not None:
            connection.authenticated(outcome.principal)
            answer.session_lifetime_ms = _limit_session(broker, connection, authentication, outcome)
        pending.complete(answer)

    authentication.step(bytes(body.auth_bytes), stepped)
    return pending


def _refuse(
    broker: Broker, connection: ConnectionInfo, authentication: Authentication, outcome: StepResult, pending: Pending,
    answer: SaslAuthenticateResponse,
) -> None:  # fmt: skip
    """Answers after `connection.failed.authentication.delay.ms`, which slows down guessing."""
    mechanism = authentication.mechanism or "none"
    reason = outcome.reason or outcome.error or ""
    broker.audit.refused_authentication(connection.host, connection.listener, mechanism, outcome.claimed, reason)
    delay_ms = broker.config.connection_failed_authentication_delay_ms
    timer = broker.timers.call_later(delay_ms, lambda: pending.complete(answer))
    pending.abandon = timer.cancel


def _limit_session(broker: Broker, connection: ConnectionInfo, authentication: Authentication, outcome: StepResult) -> int:
    """Sets the timer that ends the session. Returns the session's lifetime in milliseconds, 0 for no limit."""
    listener, mechanism = connection.listener, authentication.mechanism
    limits = [broker.config.of_listeners.value(listener, "connections.max.reauth.ms", mechanism)]
    if outcome.ends_ms is not None:
        limits.append(max(outcome.ends_ms - broker.clock.wall_ms(), 1))
    lifetime_ms = min((limit for limit in limits if limit > 0), default=0)

    def end() -> None:
        authentication.end_session()
        connection.session_ended()

    lifetime_ms = int(lifetime_ms)
    if lifetime_ms:
        connection.limit_session(broker.ages.timers.call_later(lifetime_ms, end), broker.clock.monotonic_ms() + lifetime_ms)
    else:
        connection.limit_session(None)
    return lifetime_ms


def _prove(broker: Broker, connection: ConnectionInfo, exchange: Exchange, token: bytes) -> Pending:
    """Executes one step of the exchange that proves a broker's identity."""
    pending = Pending()

    def stepped(outcome: StepResult) -> None:
        if outcome.error is not None or outcome.principal is not None:
            connection.peer_exchange = None
        if outcome.error is not None:
            broker.audit.refused_broker(connection, outcome.error)
            if connection.authentication is not None and not connection.is_authenticated:
                connection.authentication.refuse()
        elif outcome.principal is not None and not connection.is_authenticated:
            connection.authenticated(outcome.principal)
        code = ErrorCode.NONE if outcome.error is None else ErrorCode.SASL_AUTHENTICATION_FAILED
        pending.complete(SaslAuthenticateResponse(error_code=code, error_message=outcome.error, auth_bytes=outcome.token))

    exchange.step(token, stepped)
    return pending
