"""WriteShareGroupState: a share partition's leader stores changes of its state.

Behaviour: the changes are merged into the stored state and logged. A leader that was replaced gets FENCED_LEADER_EPOCH. A leader that has
loaded the state before its last reset gets FENCED_STATE_EPOCH. A share partition that was never initialized gets INVALID_REQUEST. A share
partition that another broker coordinates gets NOT_COORDINATOR. Clients get CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this
request.

Version notes: 1 has the number of finished records (KIP-1226).
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
