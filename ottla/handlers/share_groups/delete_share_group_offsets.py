"""DeleteShareGroupOffsets: deletes the positions of a share group without members in topics (KIP-932).

Behaviour: NON_EMPTY_GROUP while the group has members, GROUP_ID_NOT_FOUND if it does not exist or is of another kind. Each topic has its
own result: TOPIC_AUTHORIZATION_FAILED if the principal may not read it, UNKNOWN_TOPIC_OR_PARTITION if it does not exist or the group does
not know it. UNSUPPORTED_VERSION while the feature `share.version` is at level 0.

Version notes: there is one version.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import ShareOffsetOutcomes, refuse_share_offsets
from ottla.groups.commands import DeleteShareOffsets
from ottla.groups.share.offsets import delete_share_offsets
from ottla.handlers.advertised_levels import require_share_groups
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import run
from ottla.handlers.rights import is_allowed, require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


def handle(broker: Broker, request: RequestContext, body: DeleteShareGroupOffsetsRequest) -> Any:
    pending = Pending()
    refused: list[DeleteShareGroupOffsetsResponseTopic] = []

    def answer(outcomes: ShareOffsetOutcomes) -> None:
        response = respond(outcomes)
        if response.error_code:
            pending.complete(response)
            return
        response.responses += refused
        # A member that ended without leaving the group may keep them open; the next reader begins at the stored state.
        broker.share_partitions.close_group(body.group_id, lambda: pending.complete(response))

    try:
        require_share_groups(broker.config.ottla_advertise_level)
        require(broker, request, AclOperation.DELETE, ResourceType.GROUP, body.group_id)
        if not body.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        kept = []
        for topic in body.topics:
            if is_allowed(broker, request, AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
                kept.append(topic.topic_name)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, error_code=code))
        command = DeleteShareOffsets(group_id=body.group_id, topics=kept)
        run(broker, body.group_id, lambda shard, reply, _now: delete_share_offsets(shard, command, reply), answer)
    except ApiError as error:
        return respond(refuse_share_offsets(error.code, error.message))
    return pending


def respond(outcomes: ShareOffsetOutcomes) -> DeleteShareGroupOffsetsResponse:
    topics = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=outcome.topic, topic_id=outcome.topic_id, error_code=outcome.error, error_message=outcome.message
        )
        for outcome in outcomes.outcomes
    ]
    return DeleteShareGroupOffsetsResponse(error_code=outcomes.error, error_message=outcomes.message, responses=topics)
