"""DeleteGroups: an operator removes groups without members, and all their offsets.

Behaviour: each group has its own result. A group with members gets NON_EMPTY_GROUP, an unknown group GROUP_ID_NOT_FOUND. The answer is sent
when the tombstones are committed.

Version notes: 1 and 2 change only throttling and encoding. 3 has error messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.admin import delete_group
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Gathering, run
from ottla.handlers.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(broker: Broker, request: RequestContext, body: DeleteGroupsRequest) -> Any:
    names = list(dict.fromkeys(body.groups_names))
    if not names:
        return DeleteGroupsResponse()
    pending, answer = Pending(), DeleteGroupsResponse()
    gathering = Gathering(len(names), lambda: pending.complete(answer))

    def add(group_id: str, code: ErrorCode) -> None:
        answer.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        gathering.part_done()

    for group_id in names:
        _delete(broker, request, group_id, add)
    return pending


def _delete(broker: Broker, request: RequestContext, group_id: str, add: Callable[[str, ErrorCode], None]) -> None:
    def deleted(code: ErrorCode) -> None:
        if code:
            add(group_id, code)
        else:  # A member that ended without leaving may have left share partitions open. A new group of this name must not use them.
            broker.share_partitions.close_group(group_id, lambda: add(group_id, code))

    try:
        require(broker, request, AclOperation.DELETE, ResourceType.GROUP, group_id)
        run(broker, group_id, lambda shard, reply, _now: delete_group(shard, group_id, reply), deleted)
    except ApiError as error:
        add(group_id, error.code)
