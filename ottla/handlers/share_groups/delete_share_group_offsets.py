"""DeleteShareGroupOffsets: deletes the offsets of a share group for some topics; the group must have no members (KIP-932).

Behaviour: the principal needs DELETE on the group. A group with members gets NON_EMPTY_GROUP. A group that does not exist or has another
type gets GROUP_ID_NOT_FOUND. Each topic has its own result: TOPIC_AUTHORIZATION_FAILED if the principal may not read it,
UNKNOWN_TOPIC_OR_PARTITION if it does not exist or the group has no state for it, and the error of a share coordinator that did not delete
a state. While the feature `share.version` is at level 0, the answer is UNSUPPORTED_VERSION.

Version notes: there is one version.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.groups.answers import ShareOffsetOutcomes
from ottla.groups.commands import DeleteShareOffsets
from ottla.groups.share.offsets import delete_share_offsets
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import Command
from ottla.handlers.rights import is_allowed
from ottla.handlers.share_groups.offset_changes import change_offsets
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


def handle(broker: Broker, request: RequestContext, body: DeleteShareGroupOffsetsRequest) -> Any:
    def make() -> tuple[Command, list[DeleteShareGroupOffsetsResponseTopic]]:
        kept: list[str] = []
        refused: list[DeleteShareGroupOffsetsResponseTopic] = []
        for topic in body.topics:
            if is_allowed(broker, request, AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
                kept.append(topic.topic_name)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, error_code=code))
        command = DeleteShareOffsets(group_id=body.group_id, topics=kept)
        return lambda shard, reply, _now_ms: delete_share_offsets(shard, command, reply), refused

    return change_offsets(broker, request, body.group_id, AclOperation.DELETE, make, respond)


def respond(outcomes: ShareOffsetOutcomes) -> DeleteShareGroupOffsetsResponse:
    topics = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=outcome.topic, topic_id=outcome.topic_id, error_code=outcome.error, error_message=outcome.message
        )
        for outcome in outcomes.outcomes
    ]
    return DeleteShareGroupOffsetsResponse(error_code=outcomes.error, error_message=outcomes.message, responses=topics)
