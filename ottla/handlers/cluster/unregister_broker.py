"""UnregisterBroker: removes the registration of a broker that will not return.

Behaviour: a registration in ZooKeeper ends with the broker's session, so every registered broker is treated as running. A running broker is
refused with INVALID_REQUEST, because removing its registration would disturb it. Every other id gets BROKER_ID_NOT_REGISTERED, as in Kafka.

Version notes: none.

Not done: unregistering a broker that runs. Kafka does it, and the broker then waits for a restart.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(broker: Broker, request: RequestContext, body: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    refusal = _refusal(broker, request, body.broker_id)
    return UnregisterBrokerResponse(error_code=refusal.code, error_message=refusal.message)


def _refusal(broker: Broker, request: RequestContext, broker_id: int) -> ApiError:
    try:
        require_on_cluster(broker, request, AclOperation.ALTER)
    except ApiError as refusal:
        return refusal
    if broker_id not in broker.metadata.brokers:
        return ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    text = f"Broker {broker_id} is running and cannot be unregistered. Its registration ends when it stops."
    return ApiError(ErrorCode.INVALID_REQUEST, text)
