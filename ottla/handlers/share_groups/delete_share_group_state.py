"""DeleteShareGroupState: the group coordinator deletes the stored state of share partitions.

Behaviour: the stored state is deleted; a share partition without state is no error. UNKNOWN_TOPIC_OR_PARTITION for a topic that does not
exist. Only brokers may ask: CLUSTER_AUTHORIZATION_FAILED for clients. A share partition that another broker coordinates is NOT_COORDINATOR.

Version notes: there is one.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.share_groups.state_requests import StateApi, ask
from ottla.sharing.commands import DeleteState
from ottla.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)


def handle(broker: Broker, request: RequestContext, body: DeleteShareGroupStateRequest) -> Any:
    return ask(broker, request, body, API)


API = StateApi(lambda key, _asked: DeleteState(key), DeleteShareGroupStateResponse, DeleteStateResult, PartitionResult)
