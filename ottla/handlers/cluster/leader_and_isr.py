"""LeaderAndIsr: the controller makes replicas leaders or followers.

Behaviour: only brokers may send it: CLUSTER_AUTHORIZATION_FAILED for clients. STALE_CONTROLLER_EPOCH from a controller that was replaced,
STALE_BROKER_EPOCH for an earlier life of this broker, INVALID_REQUEST for a message that no controller sends. Otherwise the answer is sent
when the replicas of the message are open and have their roles.

Version notes: the form of Kafka's ZooKeeper mode, last in 3.9; 2 and later carry the broker epoch (KIP-380), 5 topic ids. Tagged fields of
our own carry what Kafka's form lacks (`cluster/control/wire.py`).

Not done: not advertised; versions before the newest, which no broker of this program sends.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


def handle(broker: Broker, request: RequestContext, body: LeaderAndIsrRequest) -> LeaderAndIsrResponse | Pending:
    if not is_broker(broker, request):
        return LeaderAndIsrResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.version != LeaderAndIsrRequest.VERSIONS[1]:
        return LeaderAndIsrResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    pending = Pending()
    broker.control.take(body, lambda code: pending.complete(LeaderAndIsrResponse(error_code=code)))
    return pending
