"""ReadShareGroupStateSummary: the progress of the share partitions of a group, for tools.

Behaviour: epochs, start offset and the number of finished records after it. The leader epoch of the request is
ignored. A share partition without stored
state has a start offset of -1. Only brokers may ask: CLUSTER_AUTHORIZATION_FAILED for clients. A share partition that another broker
coordinates is NOT_COORDINATOR.

Version notes: 1 the number of finished records (KIP-1226).
"""

from __future__ import annotations

from typing import Any

from ottla.base.share_state import SharePartitionKey
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.share_groups.state_requests import ask, responder
from ottla.sharing.commands import ReadSummary, StateResult
from ottla.wire.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)


def handle(broker: Broker, request: RequestContext, body: ReadShareGroupStateSummaryRequest) -> Any:
    commands = [
        ReadSummary(SharePartitionKey(body.group_id, topic.topic_id, asked.partition), asked.leader_epoch)
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
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )


respond = responder(ReadShareGroupStateSummaryResponse, ReadStateSummaryResult, to_wire)
