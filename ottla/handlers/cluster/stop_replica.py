"""StopReplica: the controller stops replicas.

Behaviour: a controller splits a long message into several requests. The last one is answered when the replicas are stopped. Clients get
CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this request. A controller that was replaced gets STALE_CONTROLLER_EPOCH. A
message for an earlier registration of this broker gets STALE_BROKER_EPOCH. An invalid message gets INVALID_REQUEST.

Version notes: the format of Kafka's ZooKeeper mode, last in 3.9. 1 and later have the broker epoch (KIP-380). Ottla adds tagged fields
(`cluster/control/wire.py`).

Not done: the API is not advertised. Versions before the newest get UNSUPPORTED_VERSION, because Ottla's brokers do not send them.
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
