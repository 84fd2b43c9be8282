"""Heartbeat: keeps the session of a classic group's member alive; the answer says whether it must join again.

Behaviour: moves the end of the member's session. REBALANCE_IN_PROGRESS while the group rebalances, ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID
for a member that is no longer in it, FENCED_INSTANCE_ID for a static member whose place was taken.

Version notes: 3 static members (KIP-345); 1, 2 and 4 change only throttling and encoding.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.groups import classic_requests
from ottla.groups.commands import Heartbeat
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import ask
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, request: RequestContext, body: HeartbeatRequest) -> Any:
    command = Heartbeat(body.group_id, body.member_id, body.group_instance_id, body.generation_id)
    return ask(
        broker, request, body.group_id, lambda shard, reply, now_ms: classic_requests.heartbeat(shard, command, reply, now_ms), respond
    )


def respond(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
