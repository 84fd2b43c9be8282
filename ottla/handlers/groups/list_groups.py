"""ListGroups: the groups that this broker coordinates.

Behaviour: the answer has the name, protocol type, state and type of every group on this broker that the filters select and the principal
may describe. A group without members, offsets and a record is not listed. While a shard is loading, the answer is
COORDINATOR_LOAD_IN_PROGRESS, because an incomplete list would look like a complete one.

Version notes: 4 has states and a filter for states (KIP-518), 5 types and a filter for types (KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import pieces_of
from ottla.groups import answers as groups
from ottla.groups.admin import list_groups
from ottla.groups.answers import GroupList
from ottla.groups.commands import ListGroups
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Gathering
from ottla.handlers.rights import permits, permits_on_cluster
from ottla.machine.host import HostState, MachineHost
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(broker: Broker, request: RequestContext, body: ListGroupsRequest) -> Generator[None, None, Any]:
    hosts = broker.groups.all_hosts()
    if any(host.state is HostState.LOADING for host in hosts):
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if not hosts:
        return ListGroupsResponse()
    pending, answer = Pending(), ListGroupsResponse()
    sees_all = permits_on_cluster(broker, request, AclOperation.DESCRIBE)
    gathering = Gathering(len(hosts), lambda: pending.complete(answer))

    def add(part: GroupList) -> None:
        answer.error_code = answer.error_code or part.error
        answer.groups.extend(_shown(group) for group in part.groups if sees_all or _may_describe(broker, request, group.group_id))
        gathering.part_done()

    command = ListGroups(states=(yield from _lowered(body.states_filter)), types=(yield from _lowered(body.types_filter)))
    for host in hosts:
        _ask(host, command, add)
        yield
    return pending


def _lowered(names: Iterable[str]) -> Generator[None, None, frozenset[str]]:
    found: dict[str, None] = {}
    for piece in pieces_of(names):
        found.update(dict.fromkeys(map(str.lower, piece)))
        yield
    return frozenset(found)


def _ask(host: MachineHost, command: ListGroups, add: Callable[[GroupList], None]) -> None:
    try:
        host.run(lambda _now_ms: list_groups(host.machine.shard, command, add))
    except ApiError as error:
        add(GroupList(error=error.code))


def _shown(group: groups.ListedGroup) -> ListedGroup:
    return ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=group.type)


def _may_describe(broker: Broker, request: RequestContext, group_id: str) -> bool:
    return permits(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
