"""ListGroups: the groups that this broker coordinates.

Behaviour: names, protocol type, state and type of every group of every shard here that the principal may describe. While a shard still
loads the answer is COORDINATOR_LOAD_IN_PROGRESS, because a list with a hole would read as a list without.

Version notes: 4 states and a filter for them (KIP-518); 5 types and a filter for them (KIP-848).

Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError
from ottla.machine.host import MachineHost
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.coordination import Gathering
from ottla.requests.rights import is_allowed, is_allowed_on_cluster
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(broker: Broker, request: RequestContext, body: ListGroupsRequest) -> Any:
    try:
        hosts = list(broker.groups.all_hosts())
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    if not hosts:
        return ListGroupsResponse()
    pending, answer = Pending(), ListGroupsResponse()
    sees_all = is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE)
    gathering = Gathering(len(hosts), lambda: pending.complete(answer))

    def add(part: ListGroupsResponse) -> None:
        answer.error_code = answer.error_code or part.error_code
        answer.groups.extend(group for group in part.groups if sees_all or _may_describe(broker, request, group))
        gathering.part_done()

    for host in hosts:
        _ask(host, body, add)
    return pending


def _ask(host: MachineHost, body: ListGroupsRequest, add: Any) -> None:
    try:
        host.run(lambda _now_ms: host.machine.list_groups(body, add))
    except ApiError as error:
        add(ListGroupsResponse(error_code=error.code))


def _may_describe(broker: Broker, request: RequestContext, group: ListedGroup) -> bool:
    return is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
