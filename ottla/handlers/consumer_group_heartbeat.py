"""ConsumerGroupHeartbeat: a member joins, stays in or leaves a group whose assignment the coordinator makes (KIP-848).

Behaviour: epoch 0 joins, -1 leaves, -2 leaves for a moment (static members). The answer has the member's epoch, and its partitions when
they changed. Topics that the principal may not describe are TOPIC_AUTHORIZATION_FAILED. Where `group.coordinator.rebalance.protocols`
leaves the protocol out, UNSUPPORTED_VERSION. See `groups/consumer/heartbeat.py`.

Version notes: 1 regular expressions, and member ids made by the client (0: a member that joins may leave it to the coordinator).

Not done: topics that a regular expression matches are not filtered by what the member may describe.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.consumer.heartbeat import refusal
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.coordination import caller_of, describable_topics, offers_consumer_groups, run
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def handle(broker: Broker, request: RequestContext, body: ConsumerGroupHeartbeatRequest) -> Any:
    if not offers_consumer_groups(broker):
        return refusal(ErrorCode.UNSUPPORTED_VERSION)
    caller, pending = caller_of(request, describable_topics(broker, request)), Pending()
    try:
        require(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        for topic in body.subscribed_topic_names or ():
            require(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        run(broker, body.group_id, lambda machine, reply, now_ms: machine.consumer_heartbeat(body, caller, reply, now_ms), pending.complete)
    except ApiError as error:
        return refusal(error.code, error.message)
    return pending
