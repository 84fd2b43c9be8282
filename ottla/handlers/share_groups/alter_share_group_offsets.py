"""AlterShareGroupOffsets: an operator moves a share group without members to other offsets (KIP-932).

Behaviour: the group starts again at the given offset of each partition, and the stored state of records in flight is deleted. The principal
needs READ on the group. A group with members gets NON_EMPTY_GROUP, a group of another type GROUP_ID_NOT_FOUND. A group that does not exist
is created, unless every partition is refused. Each partition has its own result: TOPIC_AUTHORIZATION_FAILED if the principal may not read
the topic, UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_NOT_AVAILABLE, or the error of its share coordinator. COORDINATOR_NOT_AVAILABLE means
that an earlier state is being deleted, or that the partition has no state and memory is full. The offset is not compared with the log until
a member fetches from the partition. While the feature `share.version` is at level 0, the answer is UNSUPPORTED_VERSION.

Version notes: there is one version.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.groups.answers import ShareOffsetOutcomes
from ottla.groups.commands import AlterShareOffsets, StartOffset
from ottla.groups.share.offsets import alter_share_offsets
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import Command
from ottla.handlers.rights import is_allowed
from ottla.handlers.share_groups.offset_changes import change_offsets
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


def handle(broker: Broker, request: RequestContext, body: AlterShareGroupOffsetsRequest) -> Any:
    def make() -> tuple[Command, list[AlterShareGroupOffsetsResponseTopic]]:
        starts: list[StartOffset] = []
        refused: list[AlterShareGroupOffsetsResponseTopic] = []
        for topic in body.topics:
            name, code = topic.topic_name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if is_allowed(broker, request, AclOperation.READ, ResourceType.TOPIC, name):
                starts += [StartOffset(name, partition.partition_index, partition.start_offset) for partition in topic.partitions]
                continue
            results = [
                AlterShareGroupOffsetsResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ]
            refused.append(AlterShareGroupOffsetsResponseTopic(topic_name=name, topic_id=ZERO_UUID, partitions=results))
        command = AlterShareOffsets(group_id=body.group_id, starts=starts)
        return lambda shard, reply, _now_ms: alter_share_offsets(shard, command, reply), refused

    return change_offsets(broker, request, body.group_id, AclOperation.READ, make, respond)


def respond(outcomes: ShareOffsetOutcomes) -> AlterShareGroupOffsetsResponse:
    """Builds the response for the permitted topics: each topic once, with the results of its partitions."""
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
