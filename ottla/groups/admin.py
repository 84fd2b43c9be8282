"""ListGroups, DescribeGroups and DeleteGroups.

ListGroups and DescribeGroups answer from memory. DeleteGroups deletes a group without members: it logs tombstones for the group and all its
offsets, at most `RECORDS_MAX` in one step. DeleteGroups answers when the last tombstone is committed. Share groups are deleted in
`share/offsets.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups import records
from ottla.groups.answers import DescribedClassicGroup, DescribedClassicMember, GroupList, ListedGroup
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import ListGroups
from ottla.groups.kinds import removal
from ottla.groups.shard import Group, GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.offsets import delete_share_group
from ottla.groups.states import DEAD, STABLE
from ottla.machine.contract import NOTHING, Decision, LogRecord, Reply
from ottla.machine.draft import Draft, answered, same_code

RECORDS_MAX = 1_000


def list_groups(shard: GroupShard, command: ListGroups, reply: Reply) -> Decision:
    """Answers with a `GroupList`."""
    states, types = command.states, command.types
    listed = [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.type.value)
        for group in shard.groups.values()
        if (not states or group.state.value.lower() in states) and (not types or group.type.value in types) and _is_real(shard, group)
    ]
    return answered(reply, GroupList(groups=listed), lambda code: GroupList(error=code))


def _is_real(shard: GroupShard, group: Group) -> bool:
    """Whether the group has members, offsets or a record. A group with clients that have only asked for a member id is not listed."""
    return bool(type(group) is not ClassicGroup or group.members or group.stored or shard.offsets.has_offsets(group.group_id))


def describe_groups(shard: GroupShard, group_ids: Iterable[str], reply: Reply) -> Decision:
    """Answers with a list of `DescribedClassicGroup`."""
    wanted = list(group_ids)

    def refusal(code: ErrorCode) -> list[DescribedClassicGroup]:
        return [DescribedClassicGroup(group_id=group_id, error=code) for group_id in wanted]

    return answered(reply, [_describe(shard, group_id) for group_id in wanted], refusal)


def _describe(shard: GroupShard, group_id: str) -> DescribedClassicGroup:
    group = shard.groups.get(group_id)
    if type(group) is not ClassicGroup:
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return DescribedClassicGroup(group_id=group_id, error=ErrorCode.GROUP_ID_NOT_FOUND, message=message, state=DEAD.value)
    is_stable = group.state is STABLE
    members = [
        DescribedClassicMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=member.metadata(group.protocol_name) if is_stable else b"",
            assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    return DescribedClassicGroup(
        group_id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=members,
    )


def delete_group(shard: GroupShard, group_id: str, reply: Reply) -> Decision:
    """Answers with an `ErrorCode`."""
    group = shard.groups.get(group_id)
    if type(group) is ShareGroup:
        return delete_share_group(shard, group, reply)
    try:
        logged = _deletion(shard, group_id)
    except ApiError as failure:
        return answered(reply, failure.code, same_code)
    draft = Draft()
    draft.separate(logged[:RECORDS_MAX])
    if len(logged) > RECORDS_MAX:  # the next step deletes the rest when these tombstones are committed
        deferred = shard.deferred.defer("delete", reply, same_code, draft)
        draft.schedule(deferred.key, 0, lambda _now_ms: delete_group(shard, group_id, reply) if deferred.take() else NOTHING)
    else:
        draft.answer(reply, ErrorCode.NONE, same_code)
    return draft.decision()


def _deletion(shard: GroupShard, group_id: str) -> list[LogRecord]:
    """Returns tombstones for the offsets, then for the group, so that the group still exists if only a part is logged. Raises
    `ApiError`.
    """
    group = shard.groups.get(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.members:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    logged = [records.offset_tombstone(group_id, topic, partition) for topic, partition in shard.offsets.keys_of(group_id)]
    if type(group) is not ClassicGroup:
        return logged + removal(group)
    logged.append(records.group_tombstone(group_id))
    return logged
