"""ConsumerGroupHeartbeat: a member joins, remains in or leaves a consumer group of the new protocol (KIP-848).

Behaviour: a member joins with epoch 0, leaves with -1, and leaves temporarily with -2 (static members). The answer has the member's epoch,
and its partitions unless the member has them already. A heartbeat that names a topic without DESCRIBE gets TOPIC_AUTHORIZATION_FAILED. A
regular expression does not match such topics. If `group.coordinator.rebalance.protocols` excludes the protocol, the answer is
UNSUPPORTED_VERSION. See `groups/consumer/heartbeat.py`.

Version notes: 1 has regular expressions, and the client chooses its member id. In 0 the coordinator chooses the id if the client sends
none.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.groups.answers import Beat, refuse_beat
from ottla.groups.commands import ConsumerHeartbeat
from ottla.groups.consumer.heartbeat import heartbeat
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import ask_about_topics, caller_of, offers_consumer_groups
from ottla.handlers.rights import describable_topics
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

MEMBER_MAKES_ID_SINCE = 1


def handle(broker: Broker, request: RequestContext, body: ConsumerGroupHeartbeatRequest) -> Any:
    if not offers_consumer_groups(broker):
        return respond(refuse_beat(ErrorCode.UNSUPPORTED_VERSION))
    command = command_of(broker, request, body)
    return ask_about_topics(
        broker,
        request,
        body.group_id,
        body.subscribed_topic_names or (),
        lambda shard, reply, now_ms: heartbeat(shard, command, reply, now_ms),
        respond,
    )


def command_of(broker: Broker, request: RequestContext, body: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    owned, makes_member_id = body.topic_partitions, request.version >= MEMBER_MAKES_ID_SINCE
    return ConsumerHeartbeat(
        body.group_id,
        caller_of(request, describable_topics(broker, request)),
        body.member_id,
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        body.rebalance_timeout_ms,
        body.subscribed_topic_names,
        body.subscribed_topic_regex,
        body.server_assignor,
        None if owned is None else {bytes(topic.topic_id): frozenset(topic.partitions) for topic in owned},
        makes_member_id,
    )


def respond(beat: Beat) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if beat.assignment is not None:
        topics = [TopicPartitions(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in beat.assignment.items()]
        assignment = Assignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        error_code=beat.error,
        error_message=beat.message,
        member_id=beat.member_id,
        member_epoch=beat.member_epoch,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        assignment=assignment,
    )
