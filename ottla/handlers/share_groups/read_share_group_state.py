"""ReadShareGroupState: a share partition's leader takes over its stored state.

Behaviour: a leader epoch above the stored one is logged before the answer is sent. Requests with an older leader epoch then get
FENCED_LEADER_EPOCH. A share partition that was never initialized gets INVALID_REQUEST. A share partition that another broker coordinates
gets NOT_COORDINATOR. Clients get CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this request.

Version notes: there is one version.
"""

from __future__ import annotations

from typing import Any

from ottla.base.share_state import ShareState
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.share_groups.state_requests import StateApi, ask
from ottla.sharing.commands import ReadState
from ottla.wire.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


def handle(broker: Broker, request: RequestContext, body: ReadShareGroupStateRequest) -> Any:
    return ask(broker, request, body, API)


def shown(state: ShareState) -> dict[str, Any]:
    batches = [
        StateBatch(first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count)
        for first, last, delivery_state, count in state.batches
    ]
    return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}


API = StateApi(
    lambda key, asked: ReadState(key, asked.leader_epoch), ReadShareGroupStateResponse, ReadStateResult, PartitionResult, shown
)
