"""StopReplica: the controller stops replicas.

Behaviour: only brokers may send it: CLUSTER_AUTHORIZATION_FAILED for clients. STALE_CONTROLLER_EPOCH from a controller that was replaced,
STALE_BROKER_EPOCH for an earlier life of this broker, INVALID_REQUEST for a message that no controller sends. Otherwise the answer is sent
when the replicas are stopped.

Version notes: the form of Kafka's ZooKeeper mode, last in 3.9; 1 and later carry the broker epoch (KIP-380). Tagged fields of our own carry
what Kafka's form lacks (`cluster/control/wire.py`).

Not done: not advertised; versions before the newest, which no broker of this program sends.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


def handle(broker: Broker, request: RequestContext, body: StopReplicaRequest) -> StopReplicaResponse | Pending:
    if not is_broker(broker, request):
        return StopReplicaResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.version != StopReplicaRequest.VERSIONS[1]:
        return StopReplicaResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    pending = Pending()
    broker.control.take(body, lambda code: pending.complete(StopReplicaResponse(error_code=code)))
    return pending
