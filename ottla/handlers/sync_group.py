"""SyncGroup: the leader of a classic group brings the assignment, the others wait for their share.

Behaviour: followers are answered when the leader's assignment is committed to the log; later ones at once. See `groups/classic/sync.py`.

Version notes: 3 static members (KIP-345); 5 protocol type and name, which must be there and be those that were chosen (KIP-559).

Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.groups.classic.sync import sync_refusal
from ottla.requests.context import Broker, RequestContext
from ottla.requests.coordination import ask
from ottla.wire.messages.sync_group import SyncGroupRequest

PROTOCOL_SINCE = 5


def handle(broker: Broker, request: RequestContext, body: SyncGroupRequest) -> Any:
    if request.version >= PROTOCOL_SINCE and (body.protocol_type is None or body.protocol_name is None):
        return sync_refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return ask(broker, request, body.group_id, lambda machine, reply, now_ms: machine.sync_group(body, reply, now_ms), sync_refusal)
