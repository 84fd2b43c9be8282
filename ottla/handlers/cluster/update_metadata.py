"""UpdateMetadata: the controller sends the cluster's metadata.

Behaviour: the answer to the last part of a message is sent when clients get the new metadata from this broker. Clients get
CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this request. A controller that was replaced gets STALE_CONTROLLER_EPOCH. A
message for an earlier registration of this broker gets STALE_BROKER_EPOCH. An invalid message gets INVALID_REQUEST.

Version notes: the format of Kafka's ZooKeeper mode, last in 3.9. 5 and later have the broker epoch (KIP-380), 7 topic ids. Ottla adds
tagged fields (`cluster/control/wire.py`).

Not done: the API is not advertised. Versions before the newest get UNSUPPORTED_VERSION, because Ottla's brokers do not send them.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle(broker: Broker, request: RequestContext, body: UpdateMetadataRequest) -> UpdateMetadataResponse | Pending:
    if not is_broker(broker, request):
        return UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.version != UpdateMetadataRequest.VERSIONS[1]:
        return UpdateMetadataResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    pending = Pending()
    broker.control.take(body, lambda code: pending.complete(UpdateMetadataResponse(error_code=code)))
    return pending
