"""LeaderAndIsr: the controller makes replicas leaders or followers.

Behaviour: only brokers may send it: CLUSTER_AUTHORIZATION_FAILED for clients. A broker that is its own controller
answers STALE_CONTROLLER_EPOCH to any other.

Version notes: the form of Kafka's ZooKeeper mode, last in 3.9; 2 and later carry the broker epoch (KIP-380).

Not done: being led by another broker's controller; not advertised.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.requests.rights import is_broker
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


def handle(broker: Broker, request: RequestContext, body: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    if not is_broker(broker, request):
        return LeaderAndIsrResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
