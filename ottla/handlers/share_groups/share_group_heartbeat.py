"""ShareGroupHeartbeat: a member joins, stays in or leaves a share group, whose assignment the coordinator makes (KIP-932).

Behaviour: epoch 0 joins, -1 leaves. The answer has the member's epoch, and its partitions when they changed or the member sent its
subscription. Topics that the principal may not describe are TOPIC_AUTHORIZATION_FAILED. See `groups/share/heartbeat.py`.
UNSUPPORTED_VERSION while the feature `share.version` is at level 0.

Version notes: 0 was an early access version that no release serves any more.
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
"""Maximum of topics in a member's subscription, because the topics of a group are stored in one record."""


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
