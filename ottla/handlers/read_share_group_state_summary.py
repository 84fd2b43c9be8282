"""ReadShareGroupStateSummary: where the share partitions of a group stand, for tools.

Behaviour: epochs, start offset and the number of finished records after it; no leader epoch is taken over. A share partition without
stored state has a start offset of -1. Only brokers may ask: CLUSTER_AUTHORIZATION_FAILED for clients.

Version notes: 1 the number of finished records (KIP-1226).

Not done: nothing. A share partition that is coordinated elsewhere is NOT_COORDINATOR.
"""

from __future__ import annotations

from typing import Any

from ottla.base.share_state import SharePartitionKey
from ottla.requests.context import Broker, RequestContext
from ottla.requests.share_state_calls import Results, ask, by_topic
from ottla.sharing.commands import ReadSummary, Result
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


def respond(results: Results) -> ReadShareGroupStateSummaryResponse:
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(topic_id=topic_id, partitions=[to_wire(partition, result) for partition, result in partitions])
            for topic_id, partitions in by_topic(results).items()
        ]
    )


def to_wire(partition: int, result: Result) -> PartitionResult:
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
