"""OffsetCommit: commits offsets of a group, for a member or for a client without membership.

Behaviour: this handler refuses topics and partitions that do not exist, and topics that the principal may not read; each has its own
result. The group coordinator checks member and generation, and commits the other offsets. The answer is sent when the records are
committed. After `offsets.commit.timeout.ms` the answer is COORDINATOR_NOT_AVAILABLE.

Version notes: 2 to 4 have a retention time (removed by KIP-211), 6 leader epochs (KIP-320), 7 static members (KIP-345). 9 is for members of
the new protocol, with STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-848). 10 has topic ids. A member may name an epoch that it had earlier
(KIP-1251).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.commands import CommitOffsets
from ottla.groups.offsets.commit import commit_offsets
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import run_commit
from ottla.handlers.groups.offset_topics import check_topics, joined, offsets_of
from ottla.handlers.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

MEMBER_EPOCHS_SINCE = 9
TOPIC_IDS_SINCE = 10


def handle(broker: Broker, request: RequestContext, body: OffsetCommitRequest) -> Any:
    pending = Pending()
    try:
        require(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        topics, refused = check_topics(broker, request, body.topics, OffsetCommitRequestTopic, by_id=request.version >= TOPIC_IDS_SINCE)
        results = [outcome(topic, repeat(code)) for topic, code in refused]
        if not topics:
            return OffsetCommitResponse(topics=joined(results))

        def answer(codes: Iterable[ErrorCode]) -> None:
            each = iter(codes)
            pending.complete(OffsetCommitResponse(topics=joined([*(outcome(topic, each) for topic in topics), *results])))

        command = command_of(request, body, topics)
        run_commit(broker, body.group_id, lambda shard, reply, now_ms: commit_offsets(shard, command, reply, now_ms), answer)
    except ApiError as error:
        return OffsetCommitResponse(topics=[outcome(topic, repeat(error.code)) for topic in body.topics])
    return pending


def command_of(request: RequestContext, body: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic]) -> CommitOffsets:
    knows_epochs = request.version >= MEMBER_EPOCHS_SINCE
    return CommitOffsets(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        offsets_of(topics),
        body.retention_time_ms,
        knows_epochs,
        request.connection.owner,
    )


def outcome(topic: OffsetCommitRequestTopic, codes: Iterator[ErrorCode]) -> OffsetCommitResponseTopic:
    """Builds a topic of the response. Takes one code from `codes` for each partition."""
    results = [
        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=next(codes)) for partition in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)
