"""ControlledShutdown: a broker asks to hand over its partitions.

Behaviour: a broker that is about to stop hands over the partitions that it leads. The answer lists the partitions that another live replica
may lead once it is in sync. Clients get CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this request.

Version notes: the format of Kafka's ZooKeeper mode, last in 3.9. 0 has a header without a client id. 2 has the broker epoch (KIP-380).

Not done: not advertised.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_broker
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse, RemainingPartition


def handle(broker: Broker, request: RequestContext, body: ControlledShutdownRequest) -> ControlledShutdownResponse | Pending:
    if not is_broker(broker, request):
        return ControlledShutdownResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    pending = Pending()

    def handed_over(error: ErrorCode, remaining: list[tuple[str, int]]) -> None:
        partitions = [RemainingPartition(topic_name=topic, partition_index=index) for topic, index in remaining]
        pending.complete(ControlledShutdownResponse(error_code=error, remaining_partitions=partitions))

    broker.controller.controlled_shutdown(body.broker_id, body.broker_epoch, handed_over)
    return pending
