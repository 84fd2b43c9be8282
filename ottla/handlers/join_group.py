"""JoinGroup: a member comes into a classic group, or comes again, and waits until the group has gathered.

Behaviour: the answer comes when the round is complete: the new generation, the chosen protocol, and for the leader the subscriptions of
all. What each member may and must bring is in `groups/classic/join.py`.

Version notes: 1 rebalance timeout (0 uses the session timeout for both); 4 MEMBER_ID_REQUIRED (KIP-394); 5 static members (KIP-345);
7 protocol type, and a protocol name that may be null (KIP-559); 8 reason (KIP-800); 9 skip assignment (KIP-814).

Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError
from ottla.groups.classic.rebalance import join_refusal
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.coordination import caller_of, describable_topics, run
from ottla.requests.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

NULL_PROTOCOL_SINCE = 7


def handle(broker: Broker, request: RequestContext, body: JoinGroupRequest) -> Any:
    caller, pending = caller_of(request, describable_topics(broker, request)), Pending()

    def answer(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and request.version < NULL_PROTOCOL_SINCE:
            response.protocol_name = ""
        pending.complete(response)

    try:
        require(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        run(broker, body.group_id, lambda machine, reply, now_ms: machine.join_group(body, caller, reply, now_ms), answer)
    except ApiError as error:
        answer(join_refusal(error.code, body.member_id))
    return pending
