"""SaslHandshake: the client chooses a SASL mechanism.

Behaviour: begins the exchange of a mechanism that the listener has; another one is UNSUPPORTED_SASL_MECHANISM and ends the connection. On
a listener that does not authenticate by SASL, and after authentication, ILLEGAL_SASL_STATE as Kafka answers. On the listener for brokers
another broker begins its own proof, whatever the listener wants of clients (`security/cluster_identity.py`).

Version notes: 1 announces SaslAuthenticate frames instead of raw ones (KIP-152).

Not done: no listener has a mechanism yet; raw tokens after version 0; re-authentication (KIP-368).
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.security.cluster_identity import MECHANISM, ClusterIdentity
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(broker: Broker, request: RequestContext, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
    identity = broker.cluster_identity
    if identity is not None and body.mechanism == MECHANISM and request.connection.listener == broker.config.inter_broker_listener:
        return _begin_proof(identity, request)
    authentication = request.connection.authentication
    if authentication is None or request.connection.is_authenticated:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return SaslHandshakeResponse(error_code=authentication.choose(body.mechanism), mechanisms=list(authentication.mechanisms))


def _begin_proof(identity: ClusterIdentity, request: RequestContext) -> SaslHandshakeResponse:
    connection = request.connection
    if connection.is_inter_broker or connection.peer_exchange is not None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    connection.peer_exchange = identity.accepting(connection.proved_broker)
    return SaslHandshakeResponse(mechanisms=[MECHANISM])
