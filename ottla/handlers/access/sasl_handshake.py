"""SaslHandshake: the client chooses a SASL mechanism.

Behaviour: begins the exchange of the requested mechanism. If the listener does not offer this mechanism, the broker answers
UNSUPPORTED_SASL_MECHANISM and closes the connection. If the listener does not use SASL, the broker answers ILLEGAL_SASL_STATE, as in Kafka.

Re-authentication (KIP-368): an authenticated client may begin another exchange. No other request is executed until this exchange is
complete. A second re-authentication within a second is answered with ILLEGAL_SASL_STATE.

Brokers: on the listener for brokers, another broker can begin the proof of its identity (`security/cluster_identity.py`). If brokers log in
by SASL, the other broker must have logged in before. With ACLs, the principal of this login, or of the TLS certificate, needs
CLUSTER_ACTION.

Version notes: 1 announces SaslAuthenticate frames instead of raw ones (KIP-152).

Not done: raw tokens after version 0.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.security.cluster_identity import MECHANISM, ClusterIdentity
from ottla.security.principal import ANONYMOUS
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

AGAIN_INTERVAL_MS = 1000
"""Minimum time between the starts of two re-authentications of a connection, in milliseconds, as in Kafka."""


def handle(broker: Broker, request: RequestContext, body: SaslHandshakeRequest) -> SaslHandshakeResponse | Pending:
    connection = request.connection
    if body.mechanism == MECHANISM and connection.listener == broker.config.inter_broker_listener and broker.cluster_identity is not None:
        return _begin_proof(broker, broker.cluster_identity, request)
    authentication = connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if not connection.is_authenticated and not authentication.has_authenticated:
        return SaslHandshakeResponse(error_code=authentication.choose(body.mechanism), mechanisms=list(authentication.mechanisms))
    now_ms = broker.clock.monotonic_ms()
    last_ms = connection.authenticated_again_ms
    is_too_soon = last_ms is not None and now_ms - last_ms < AGAIN_INTERVAL_MS
    if not authentication.has_authenticated or (is_too_soon and connection.is_authenticated):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    connection.authenticates_again(now_ms)
    pending = Pending()
    pending.complete(
        SaslHandshakeResponse(error_code=authentication.choose(body.mechanism), mechanisms=list(authentication.mechanisms))
    )
    return pending


def _begin_proof(broker: Broker, identity: ClusterIdentity, request: RequestContext) -> SaslHandshakeResponse:
    connection = request.connection
    if connection.is_inter_broker or connection.peer_exchange is not None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    authentication = connection.authentication
    must_log_in = authentication is not None and broker.config.sasl_mechanism_inter_broker_protocol != MECHANISM
    if authentication is not None and must_log_in and not connection.is_authenticated:
        return SaslHandshakeResponse(error_code=authentication.choose(MECHANISM), mechanisms=list(authentication.mechanisms))
    is_judged = connection.principal != ANONYMOUS and bool(broker.config.authorizer_class_name)
    if is_judged and not is_broker(broker, request):
        broker.audit.refused_broker(connection, "it has no right to CLUSTER_ACTION; name it in super.users")
        return SaslHandshakeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    connection.peer_exchange = identity.accepting(connection.proved_broker)
    return SaslHandshakeResponse(mechanisms=[MECHANISM])
