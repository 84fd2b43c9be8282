"""ReadShareGroupState: a share partition's leader takes over its stored state.

Behaviour: a leader epoch above the stored one is logged before the answer is sent, and fences older leaders: FENCED_LEADER_EPOCH.
INVALID_REQUEST for a share partition that was never initialized. Only brokers may ask: CLUSTER_AUTHORIZATION_FAILED for clients. A share
partition that another broker coordinates is NOT_COORDINATOR.

Version notes: there is one.
"""

from __future__ import annotations

from typing import Any

from ottla.base.share_state import SharePartitionKey
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.share_groups.state_requests import ask, responder
from ottla.sharing.commands import ReadState, StateResult
from ottla.wire.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


def handle(broker: Broker, request: RequestContext, body: ReadShareGroupStateRequest) -> Any:
    commands = [
        ReadState(SharePartitionKey(body.group_id, topic.topic_id, asked.partition), asked.leader_epoch)
        for topic in body.topics
        for asked in topic.partitions
    ]
    return ask(broker, request, commands, respond)


def to_wire(partition: int, result: StateResult) -> PartitionResult:
    state = result.state
    if state is None:
        return PartitionResult(partition=partition, error_code=result.code, error_message=result.message)
    return PartitionResult(
        partition=partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count)
            for first, last, delivery_state, count in state.batches
        ],
    )


respond = responder(ReadShareGroupStateResponse, ReadStateResult, to_wire)
