"""InitializeShareGroupState: the group coordinator creates or resets the stored state of share partitions.

Behaviour: replaces the stored state. A state epoch below the stored one gets FENCED_STATE_EPOCH. A topic that does not exist gets
UNKNOWN_TOPIC_OR_PARTITION. A share partition that another broker coordinates gets NOT_COORDINATOR. Clients get
CLUSTER_AUTHORIZATION_FAILED, because only brokers may send this request.

Version notes: there is one version.
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
