"""JoinGroup: a member joins a classic group, or joins it again, and usually waits until all members have joined.

Behaviour: the answer has the member's generation and the chosen protocol; the leader's answer also has the subscriptions of all members. If
the group rebalances, the answer is sent when the join phase is complete. `groups/classic/join.py` checks the request.

Version notes: 1 has the rebalance timeout; in 0 the session timeout is used for both. 4 has MEMBER_ID_REQUIRED (KIP-394), 5 static members
(KIP-345), 7 the protocol type, and a protocol name that may be null (KIP-559), 8 the reason (KIP-800), 9 skip assignment (KIP-814).
"""

from __future__ import annotations

from typing import Any

from ottla.groups import classic_requests
from ottla.groups.answers import Joined
from ottla.groups.classic.rebalance import refuse_join
from ottla.groups.commands import Join
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.coordination import ask, caller_of
from ottla.handlers.rights import describable_topics
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def handle(broker: Broker, request: RequestContext, body: JoinGroupRequest) -> Any:
    command = command_of(broker, request, body)
    return ask(
        broker,
        request,
        body.group_id,
        lambda shard, reply, now_ms: classic_requests.join_group(shard, command, reply, now_ms),
        lambda joined: respond(joined, request.version),
        lambda code: refuse_join(code, body.member_id),
    )


def command_of(broker: Broker, request: RequestContext, body: JoinGroupRequest) -> Join:
    return Join(
        group_id=body.group_id,
        caller=caller_of(request, describable_topics(broker, request)),
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms if body.rebalance_timeout_ms >= 0 else body.session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
        needs_member_id=request.version >= MEMBER_ID_REQUIRED_SINCE,
        may_skip_assignment=request.version >= SKIP_ASSIGNMENT_SINCE,
    )


def respond(joined: Joined, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name="" if joined.protocol_name is None and version < NULL_PROTOCOL_SINCE else joined.protocol_name,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata)
            for member in joined.members
        ],
    )
