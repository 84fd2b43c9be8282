"""ShareGroupHeartbeat: a member joins, stays in or leaves a share group, whose assignment the coordinator makes (KIP-932).

Behaviour: epoch 0 joins, -1 leaves. The answer has the member's epoch, and its partitions when they changed or the member said what it
reads. Topics that the principal may not describe are TOPIC_AUTHORIZATION_FAILED. See
`groups/share/heartbeat.py`. UNSUPPORTED_VERSION while the feature `share.version` is at level 0.

Version notes: 0 was an early access version that no release serves any more.

Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError
from ottla.groups.share.heartbeat import share_refusal
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.coordination import caller_of, run
from ottla.requests.levels import require_share_groups
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def handle(broker: Broker, request: RequestContext, body: ShareGroupHeartbeatRequest) -> Any:
    caller, pending = caller_of(request), Pending()
    try:
        require_share_groups(broker.config.ottla_advertise_level)
        require(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        for topic in body.subscribed_topic_names or ():
            require(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        run(broker, body.group_id, lambda machine, reply, now_ms: machine.share_heartbeat(body, caller, reply, now_ms), pending.complete)
    except ApiError as error:
        return share_refusal(error.code, error.message)
    return pending
