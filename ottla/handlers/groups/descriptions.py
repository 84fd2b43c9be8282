"""Describes modern groups: asks the coordinator shard of each group, answers when all have answered, and hides groups that the principal
may not see.

A group that reads a topic which the principal may not describe is hidden as a whole, since a part of its members' assignments would be
misleading. A `GroupKind` holds the differences between the protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import AssignedTopic, DescribedEpochGroup, DescribedEpochMember
from ottla.handlers.authorized_operations import authorized_operations
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Gathering, run
from ottla.handlers.rights import permits, require
from ottla.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.groups.shard import GroupShard
    from ottla.machine.contract import Decision, Reply


class GroupKind(NamedTuple):
    """The differences of one protocol: its response classes, its command, and its form of a member."""

    response: Callable[..., Any]
    group: Callable[..., Any]
    ask: Callable[[GroupShard, Sequence[str], Reply], Decision]
    show_member: Callable[[Any], Any]
    """Converts a described member to the response's class."""
    require_offered: Callable[[Broker], None]
    """Raises ApiError if the configuration excludes the protocol."""
    show_group: Callable[[DescribedEpochGroup, Any], None] = lambda _group, _shown: None
    """Adds the fields that only this protocol has to the response's group."""


def describe_groups(broker: Broker, request: RequestContext, kind: GroupKind, group_ids: Sequence[str], *, with_operations: bool) -> Any:
    """Returns the response, or a `Pending` that the coordinators complete."""
    if not group_ids:
        return kind.response()
    pending, described = Pending(), kind.response(groups=[None] * len(group_ids))
    gathering = Gathering(len(group_ids), lambda: pending.complete(described))

    def answered(index: int, group: DescribedEpochGroup) -> None:
        shown = _shown(kind, group if _may_see(broker, request, group) else _hidden(group.group_id))
        if with_operations and not shown.error_code:
            shown.authorized_operations = authorized_operations(broker, request, ResourceType.GROUP, shown.group_id)
        described.groups[index] = shown
        gathering.part_done()

    for index, group_id in enumerate(group_ids):
        _describe_one(broker, request, kind, group_id, lambda group, index=index: answered(index, group))  # type: ignore[misc]
    return pending


def _describe_one(
    broker: Broker, request: RequestContext, kind: GroupKind, group_id: str, answer: Callable[[DescribedEpochGroup], None]
) -> None:
    try:
        kind.require_offered(broker)
        require(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        run(broker, group_id, lambda shard, reply, _now: kind.ask(shard, [group_id], reply), lambda groups: answer(groups[0]))
    except ApiError as error:
        answer(DescribedEpochGroup(group_id=group_id, error=error.code, message=error.message or None))


def _shown(kind: GroupKind, group: DescribedEpochGroup) -> Any:
    shown = kind.group(
        group_id=group.group_id,
        error_code=group.error,
        error_message=group.message,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=list(map(kind.show_member, group.members)),
    )
    kind.show_group(group, shown)
    return shown


def shown_topics(message: Callable[..., Any], topics: Sequence[AssignedTopic]) -> list[Any]:
    return [message(topic_id=topic.topic_id, topic_name=topic.name, partitions=list(topic.partitions)) for topic in topics]


def _may_see(broker: Broker, request: RequestContext, group: DescribedEpochGroup) -> bool:
    topics = dict.fromkeys(_topics_of_group(group))
    return all(permits(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics)


def _topics_of_group(group: DescribedEpochGroup) -> Iterator[str]:
    if group.configured is not None:
        yield from group.configured.topology.all_topics()
        return
    for member in group.members:
        yield from _topics_of(member)


def _topics_of(member: DescribedEpochMember) -> Iterator[str]:
    yield from member.topics
    for assigned in (member.assigned, member.target):
        yield from (topic.name for topic in assigned)


def _hidden(group_id: str) -> DescribedEpochGroup:
    message = "the group reads a topic that may not be described"
    return DescribedEpochGroup(group_id=group_id, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=message)
