"""UpdateMetadata: the controller sends the cluster's metadata.

Behaviour: only brokers may send it: CLUSTER_AUTHORIZATION_FAILED for clients. A broker that is its own controller
answers STALE_CONTROLLER_EPOCH to any other.

Version notes: the form of Kafka's ZooKeeper mode, last in 3.9; 5 and later carry the broker epoch (KIP-380).

Not done: being led by another broker's controller; not advertised.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.requests.rights import is_broker
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle(broker: Broker, request: RequestContext, body: UpdateMetadataRequest) -> UpdateMetadataResponse:
    if not is_broker(broker, request):
        return UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
