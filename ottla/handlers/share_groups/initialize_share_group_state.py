"""InitializeShareGroupState: the group coordinator creates or resets the stored state of share partitions.

Behaviour: the stored state is replaced. FENCED_STATE_EPOCH for a state epoch below the stored one; UNKNOWN_TOPIC_OR_PARTITION for a topic
that does not exist. Only brokers may ask: CLUSTER_AUTHORIZATION_FAILED for clients. A share partition that another broker coordinates is
NOT_COORDINATOR.

Version notes: there is one.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.share_groups.state_requests import StateApi, ask
from ottla.sharing.commands import InitializeState
from ottla.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)


def handle(broker: Broker, request: RequestContext, body: InitializeShareGroupStateRequest) -> Any:
    return ask(broker, request, body, API)


API = StateApi(
    lambda key, asked: InitializeState(key, asked.state_epoch, asked.start_offset),
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
