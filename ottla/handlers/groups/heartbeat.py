"""Heartbeat: keeps the session of a classic group's member alive; the answer says whether it must join again.

Behaviour: extends the member's session. The answer is REBALANCE_IN_PROGRESS while members have to join again, ILLEGAL_GENERATION for
another generation than the current one, UNKNOWN_MEMBER_ID for a client that is not a member, and FENCED_INSTANCE_ID if another process uses
the static member's instance id.

Version notes: 3 has static members (KIP-345). 1, 2 and 4 change only throttling and encoding.
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
