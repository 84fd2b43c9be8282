"""ReadShareGroupStateSummary: the progress of the share partitions of a group, for tools.

Behaviour: returns the epochs, the start offset, and the number of finished records after it. The leader epoch of the request is ignored. A
share partition without stored state has a start offset of -1. A share partition that another broker coordinates gets NOT_COORDINATOR.
Clients get CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this request.

Version notes: 1 has the number of finished records (KIP-1226).
"""

from __future__ import annotations

from typing import Any

from ottla.base.share_state import ShareState
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.share_groups.state_requests import StateApi, ask
from ottla.sharing.commands import ReadSummary
from ottla.wire.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)


def handle(broker: Broker, request: RequestContext, body: ReadShareGroupStateSummaryRequest) -> Any:
    return ask(broker, request, body, API)


def shown(state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.delivery_complete_count,
    }


API = StateApi(
    lambda key, asked: ReadSummary(key, asked.leader_epoch),
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
    PartitionResult,
    shown,
)
