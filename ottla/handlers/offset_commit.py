"""OffsetCommit: a member, or a consumer that is in no group, commits its positions.

Behaviour: topics that do not exist or may not be read are refused here, one by one; the rest goes to the group, which checks member and
generation. The answer leaves when the offsets are committed to the log.

Version notes: 2-4 retention time (KIP-211 took it away); 6 leader epoch (KIP-320); 7 static members (KIP-345); 9 members of the new
protocol, STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-848); 10 topic ids.

Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.coordination import caller_of, run
from ottla.requests.offset_topics import sort_out
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE = 10


def handle(broker: Broker, request: RequestContext, body: OffsetCommitRequest) -> Any:
    pending, caller = Pending(), caller_of(request)
    by_id = request.version >= TOPIC_IDS_SINCE
    asked = body.topics
    try:
        require(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        body.topics, refused = sort_out(broker, request, asked, OffsetCommitRequestTopic, by_id=by_id)
        results = [refuse(topic, code) for topic, code in refused]
        if not body.topics:
            return OffsetCommitResponse(topics=results)

        def answer(response: OffsetCommitResponse) -> None:
            response.topics.extend(results)
            pending.complete(response)

        run(broker, body.group_id, lambda machine, reply, now_ms: machine.commit_offsets(body, caller, reply, now_ms), answer)
    except ApiError as error:
        return OffsetCommitResponse(topics=[refuse(topic, error.code) for topic in asked])
    return pending


def refuse(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    results = [OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code) for partition in topic.partitions]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)
