"""ShareGroupHeartbeat: a member joins, remains in or quits a share group, and gets its assignment (KIP-932).

Behaviour: a member joins with epoch 0 and quits with -1. The answer has the member's epoch. It has the assignment if that changed, if the
member sent its subscription, or if the member uses a new connection. A heartbeat that names a topic without DESCRIBE gets
TOPIC_AUTHORIZATION_FAILED. While the feature `share.version` is at level 0, the answer is UNSUPPORTED_VERSION. See
`groups/share/heartbeat.py`.

Version notes: 0 was an early-access version, which current releases do not serve.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError
from ottla.groups.answers import Beat, refuse_beat
from ottla.groups.commands import ShareHeartbeat
from ottla.groups.share.heartbeat import share_heartbeat
from ottla.handlers.advertised_levels import require_share_groups
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import ask_about_topics, caller_of
from ottla.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPICS_MAX = 2_000
"""Maximum number of topics in a member's subscription, because the topics of a group are stored in one record."""


def handle(broker: Broker, request: RequestContext, body: ShareGroupHeartbeatRequest) -> Any:
    try:
        require_share_groups(broker.config.ottla_advertise_level)
    except ApiError as error:
        return respond(refuse_beat(error.code, error.message))
    command = ShareHeartbeat(
        group_id=body.group_id,
        caller=caller_of(request),
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        rack_id=body.rack_id,
        topics=body.subscribed_topic_names,
    )
    return ask_about_topics(
        broker,
        request,
        body.group_id,
        body.subscribed_topic_names or (),
        lambda shard, reply, now_ms: share_heartbeat(shard, command, reply, now_ms),
        respond,
        TOPICS_MAX,
    )


def respond(beat: Beat) -> ShareGroupHeartbeatResponse:
    response = ShareGroupHeartbeatResponse(
        error_code=beat.error,
        error_message=beat.message,
        member_id=beat.member_id,
        member_epoch=beat.member_epoch,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
    )
    if beat.assignment is not None:
        response.assignment = Assignment(
            topic_partitions=[TopicPartitions(topic_id=topic, partitions=list(partitions)) for topic, partitions in beat.assignment.items()]
        )
    return response
