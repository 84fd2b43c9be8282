"""AlterShareGroupOffsets: an operator moves a share group without members to other offsets (KIP-932).

Behaviour: each partition begins again at the given offset, and the stored state of records in flight is deleted. NON_EMPTY_GROUP while the
group has members; GROUP_ID_NOT_FOUND for a group of another type. A group that does not exist is created, unless every partition is
refused. Each partition has its own result: TOPIC_AUTHORIZATION_FAILED if the principal may not read the topic, UNKNOWN_TOPIC_OR_PARTITION,
or COORDINATOR_NOT_AVAILABLE while an earlier state is being deleted. Whether the log has the offset is checked when a member fetches from
it. UNSUPPORTED_VERSION while the feature `share.version` is at level 0. The principal needs READ on the group.

Version notes: there is one version.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.groups.answers import ShareOffsetOutcomes, refuse_share_offsets
from ottla.groups.commands import AlterShareOffsets, StartOffset
from ottla.groups.share.offsets import alter_share_offsets
from ottla.handlers.advertised_levels import require_share_groups
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import run
from ottla.handlers.rights import is_allowed, require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


def handle(broker: Broker, request: RequestContext, body: AlterShareGroupOffsetsRequest) -> Any:
    pending = Pending()
    refused: list[AlterShareGroupOffsetsResponseTopic] = []

    def answer(outcomes: ShareOffsetOutcomes) -> None:
        response = respond(outcomes)
        if response.error_code:
            pending.complete(response)
            return
        response.responses += refused
        # A member that ended without leaving may have left share partitions open. After the close, the next fetch loads the new state.
        broker.share_partitions.close_group(body.group_id, lambda: pending.complete(response))

    try:
        require_share_groups(broker.config.ottla_advertise_level)
        require(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        if not body.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        topics = _sort_out(broker, request, body, refused)
        starts = [StartOffset(topic.topic_name, part.partition_index, part.start_offset) for topic in topics for part in topic.partitions]
        command = AlterShareOffsets(group_id=body.group_id, starts=starts)
        run(broker, body.group_id, lambda shard, reply, _now: alter_share_offsets(shard, command, reply), answer)
    except ApiError as error:
        return respond(refuse_share_offsets(error.code, error.message))
    return pending


def respond(outcomes: ShareOffsetOutcomes) -> AlterShareGroupOffsetsResponse:
    """Builds the response: each topic once, with the results of its partitions."""
    topics: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
    for outcome in outcomes.outcomes:
        topic = topics.get(outcome.topic)
        if topic is None:
            topic = topics[outcome.topic] = AlterShareGroupOffsetsResponseTopic(topic_name=outcome.topic, topic_id=outcome.topic_id)
        topic.partitions.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=outcome.partition, error_code=outcome.error, error_message=outcome.message
            )
        )
    return AlterShareGroupOffsetsResponse(
        error_code=outcomes.error, error_message=outcomes.message, responses=list(topics.values())
    )


def _sort_out(
    broker: Broker, request: RequestContext, body: AlterShareGroupOffsetsRequest, refused: list[AlterShareGroupOffsetsResponseTopic]
) -> list[Any]:
    kept = []
    for topic in body.topics:
        if is_allowed(broker, request, AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
            kept.append(topic)
            continue
        results = [
            AlterShareGroupOffsetsResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            for partition in topic.partitions
        ]
        refused.append(AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=ZERO_UUID, partitions=results))
    return kept
