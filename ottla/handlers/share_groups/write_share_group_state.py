"""WriteShareGroupState: a share partition's leader stores what has changed.

Behaviour: the changes are merged into the stored state and logged. FENCED_LEADER_EPOCH for a leader that was replaced, FENCED_STATE_EPOCH
for one that does not know of a reset; INVALID_REQUEST for a share partition that was never initialized. Only brokers may ask:
CLUSTER_AUTHORIZATION_FAILED for clients. A share partition that another broker coordinates is NOT_COORDINATOR.

Version notes: 1 the number of finished records (KIP-1226).
"""

from __future__ import annotations

from typing import Any

from ottla.base.share_state import ShareState, StateBatch
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.share_groups.state_requests import StateApi, ask
from ottla.sharing.commands import WriteState
from ottla.wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


def handle(broker: Broker, request: RequestContext, body: WriteShareGroupStateRequest) -> Any:
    return ask(broker, request, body, API)


def to_state(asked: PartitionData) -> ShareState:
    batches = [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) for batch in asked.state_batches
    ]
    return ShareState(asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, tuple(batches))


API = StateApi(
    lambda key, asked: WriteState(key, to_state(asked)), WriteShareGroupStateResponse, WriteStateResult, PartitionResult
)
