"""DeleteShareGroupState: the group coordinator deletes the stored state of share partitions.

Behaviour: deletes the stored state. A share partition without state is not an error. A topic that does not exist gets
UNKNOWN_TOPIC_OR_PARTITION. A share partition that another broker coordinates gets NOT_COORDINATOR. Clients get
CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this request.

Version notes: there is one version.
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
