"""What do operators ask: which groups are there, what are they doing, and delete these?

ListGroups and DescribeGroups answer from memory, DeleteGroups logs tombstones for a group without members and all its offsets, in steps of
a bounded number of records; it answers when the last is committed. How a share group is deleted says `share/offsets.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups import records
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.records import Change
from ottla.groups.draft import Caller, answered
from ottla.groups.shard import Group, GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.offsets import delete_share_group
from ottla.groups.states import DEAD, STABLE
from ottla.machine.contract import Answer, Decision, LogRecord, Reply, Schedule, independent
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

RECORDS_MAX = 1_000
FIRST_DESCRIBE_VERSION_WITH_MESSAGE = 6


def list_groups(shard: GroupShard, request: ListGroupsRequest, reply: Reply) -> Decision:
    """Answers a ListGroupsResponse of this shard's groups."""
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    listed = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=group.type.value,
        )
        for group in shard.groups.values()
        if (not states or group.state.value.lower() in states) and (not types or group.type.value in types) and _is_real(shard, group)
    ]
    return answered(reply, ListGroupsResponse(groups=listed), lambda code: ListGroupsResponse(error_code=code))


def _is_real(shard: GroupShard, group: Group) -> bool:
    """A group of whom nobody has come further than asking for a member id is not shown."""
    return bool(type(group) is not ClassicGroup or group.members or group.stored or shard.offsets.has_offsets(group.group_id))


def describe_groups(shard: GroupShard, group_ids: Iterable[str], caller: Caller, reply: Reply) -> Decision:
    """Answers a list of `DescribedGroup`."""
    wanted = list(group_ids)

    def refusal(code: ErrorCode) -> list[DescribedGroup]:
        return [DescribedGroup(group_id=group_id, error_code=code) for group_id in wanted]

    return answered(reply, [_describe(shard, group_id, caller) for group_id in wanted], refusal)


def _describe(shard: GroupShard, group_id: str, caller: Caller) -> DescribedGroup:
    group = shard.groups.get(group_id)
    if type(group) is not ClassicGroup:
        described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
        if caller.version >= FIRST_DESCRIBE_VERSION_WITH_MESSAGE:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return described
    is_stable = group.state is STABLE
    members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,  # in a rebalance the last one, which the member may still work on
        )
        for member in group.members.values()
    ]
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=members,
    )


def delete_group(shard: GroupShard, group_id: str, reply: Reply) -> Decision:
    """Answers a `DeletableGroupResult`."""

    def refusal(code: ErrorCode) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_id, error_code=code)

    group = shard.groups.get(group_id)
    if type(group) is ShareGroup:
        return delete_share_group(shard, group, reply)
    try:
        logged = _deletion(shard, group_id)
    except ApiError as failure:
        return answered(reply, refusal(failure.code), refusal)
    if len(logged) > RECORDS_MAX:
        key = f"delete/{group_id}"
        shard.deferred[key] = lambda code: Answer(reply, refusal(code))

        def more(_now_ms: int) -> Decision:
            shard.deferred.pop(key, None)
            return delete_group(shard, group_id, reply)

        go_on = Schedule(key, 0, more)
        return Decision(parts=independent(logged[:RECORDS_MAX]), effects=(go_on,), refused=lambda code: (Answer(reply, refusal(code)),))
    done = (Answer(reply, DeletableGroupResult(group_id=group_id)),)
    return Decision(parts=independent(logged), effects=done, refused=lambda code: (Answer(reply, refusal(code)),))


def _deletion(shard: GroupShard, group_id: str) -> list[LogRecord]:
    """Tombstones for the offsets, then for the group, so that a deletion cut short still knows the group it belongs to."""
    group = shard.groups.get(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.members:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    logged = [records.offset_tombstone(group_id, topic, partition) for topic, partition in shard.offsets.keys_of(group_id)]
    if isinstance(group, ConsumerGroup):
        change = Change(group)
        change.remove_group()
        return logged + change.records
    logged.append(records.group_tombstone(group_id))
    return logged
