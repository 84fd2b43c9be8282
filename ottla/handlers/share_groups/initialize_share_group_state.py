"""InitializeShareGroupState: the group coordinator creates or resets the stored state of share partitions.

Behaviour: the stored state is replaced. FENCED_STATE_EPOCH for a state epoch below the stored one; UNKNOWN_TOPIC_OR_PARTITION for a topic
that does not exist. Only brokers may ask: CLUSTER_AUTHORIZATION_FAILED for clients. A share partition that another broker coordinates is
NOT_COORDINATOR.

Version notes: there is one.
"""

from __future__ import annotations

from typing import Any

from ottla.base.share_state import SharePartitionKey
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.share_groups.state_requests import ask, responder
from ottla.sharing.commands import InitializeState, StateResult
from ottla.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)


def handle(broker: Broker, request: RequestContext, body: InitializeShareGroupStateRequest) -> Any:
    commands = [
        InitializeState(SharePartitionKey(body.group_id, topic.topic_id, asked.partition), asked.state_epoch, asked.start_offset)
        for topic in body.topics
        for asked in topic.partitions
    ]
    return ask(broker, request, commands, respond)


def to_wire(partition: int, result: StateResult) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=result.code, error_message=result.message)


respond = responder(InitializeShareGroupStateResponse, InitializeStateResult, to_wire)
