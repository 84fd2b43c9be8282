"""SyncGroup: the leader of a classic group sends the assignments, and each member gets its own.

Behaviour: the members are answered when the record with the leader's assignments is committed. A member that sends its request later is
answered immediately. See `groups/classic/sync.py`.

Version notes: 3 has static members (KIP-345). 5 has the protocol type and name, which must equal the chosen ones (KIP-559).
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.groups import classic_requests
from ottla.groups.answers import Synced
from ottla.groups.classic.rebalance import refuse_sync
from ottla.groups.commands import Sync
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import ask
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


def handle(broker: Broker, request: RequestContext, body: SyncGroupRequest) -> Any:
    if request.version >= PROTOCOL_SINCE and (body.protocol_type is None or body.protocol_name is None):
        return respond(refuse_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    command = Sync(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        generation=body.generation_id,
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
        assignments={assignment.member_id: bytes(assignment.assignment) for assignment in body.assignments},
    )
    return ask(
        broker,
        request,
        body.group_id,
        lambda shard, reply, now_ms: classic_requests.sync_group(shard, command, reply, now_ms),
        respond,
        refuse_sync,
    )


def respond(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error, protocol_type=synced.protocol_type, protocol_name=synced.protocol_name, assignment=synced.assignment
    )
