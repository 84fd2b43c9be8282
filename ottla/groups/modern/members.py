"""The members of consumer and streams groups: the checks of a heartbeat's epoch, static members, and leaving.

Invariants: every epoch is refused except 0 (joining), -1 and -2 (leaving), the member's own, and the previous one if the answer with the
new epoch was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.commands import Caller
from ottla.groups.modern.group import JOINING_EPOCH, fenced, find_facts
from ottla.groups.modern.reconciling import LEFT_STATIC_EPOCH, ReconciledAssignment, ReconcilingGroup
from ottla.groups.modern.records import EpochChange


class MemberBeat(Protocol):
    """The fields that the heartbeats of consumer and streams groups have in common."""

    @property
    def group_id(self) -> str: ...
    @property
    def caller(self) -> Caller: ...
    @property
    def member_id(self) -> str: ...
    @property
    def member_epoch(self) -> int: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def rack_id(self) -> str | None: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...
    @property
    def owned(self) -> Mapping[Any, Any] | None: ...


def check_ids(command: MemberBeat, *, may_lack_member_id: bool = False) -> None:
    """Checks the fields of a heartbeat that do not depend on the group. Raises INVALID_REQUEST."""
    epoch = command.member_epoch
    if not command.group_id.strip():
        raise invalid("the group id is empty")
    if not command.member_id and not may_lack_member_id:
        raise invalid("the member id is empty")
    if command.instance_id == "":
        raise invalid("the instance id is empty")
    if command.rack_id == "":
        raise invalid("the rack id is empty")
    if epoch < LEFT_STATIC_EPOCH:
        raise invalid(f"member epoch {epoch} is not valid")
    if epoch == LEFT_STATIC_EPOCH and command.instance_id is None:
        raise invalid("only a static member can leave for a moment")
    if epoch == JOINING_EPOCH and command.rebalance_timeout_ms == -1:
        raise invalid("a member that joins must say its rebalance timeout")


def invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def find_member(change: EpochChange[Any, Any, Any], command: MemberBeat, members_max: int) -> Any:
    """Checks the heartbeat against the group. Returns the description of its sender, or of the static member that the sender replaces; None
    if the sender is new. Raises `ApiError`.
    """
    group, member_id, epoch = change.group, command.member_id, command.member_epoch
    if command.instance_id is not None:
        current_id = group.static_members.get(command.instance_id)
        if current_id is not None and current_id != member_id:
            if epoch != JOINING_EPOCH:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance {command.instance_id} belongs to member {current_id} now")
            return _take_place(change, command.instance_id, current_id, member_id)
        if current_id is None and epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {command.instance_id} is not in the group")
    facts = find_facts(group, member_id, epoch, members_max)
    if facts is not None:
        _check_epoch(group.position(member_id), command)
    return facts


def _check_epoch(position: ReconciledAssignment, command: MemberBeat) -> None:
    epoch = command.member_epoch
    if epoch in (JOINING_EPOCH, position.epoch):
        return
    if epoch == position.previous_epoch and command.owned is not None and epoch < position.epoch:
        owned = command.owned.items()
        if all(partition in position.assigned.get(key, ()) for key, partitions in owned for partition in partitions):
            return  # the answer with the member's new epoch was lost
    raise fenced(position, epoch)


def _take_place(change: EpochChange[Any, Any, Any], instance_id: str, old_id: str, member_id: str) -> Any:
    """Gives a new process of a static member the assignment of the earlier process, which must have left temporarily.

    A member with the classic protocol is replaced even if it has not left: classic static members stop without LeaveGroup.
    """
    group = change.group
    position = group.position(old_id)
    if position.epoch != LEFT_STATIC_EPOCH and not group.is_classic(old_id):
        raise ApiError(ErrorCode.UNRELEASED_INSTANCE_ID, f"instance {instance_id} is still in use by member {old_id}")
    facts, target = group.facts[old_id], group.target.get(old_id, {})
    change.remove_member(old_id)
    change.put_member(member_id, facts)
    change.put_target(member_id, target)
    change.put_position(member_id, ReconciledAssignment.settled(0, 0, position.assigned))
    return facts


def check_leaving(group: ReconcilingGroup[Any], command: MemberBeat) -> None:
    """Raises `ApiError` if the sender of a heartbeat with a leaving epoch is not a member."""
    member_id = command.member_id
    if command.instance_id is not None:
        current_id = group.static_members.get(command.instance_id)
        if current_id is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {command.instance_id} is not in the group")
        if current_id != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance {command.instance_id} belongs to member {current_id} now")
    elif member_id not in group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")


def leave_for_a_moment(change: EpochChange[Any, Any, Any], member_id: str) -> None:
    """Keeps the assignment of a static member that leaves temporarily, until its session ends or its next process joins."""
    position = change.group.position(member_id)
    change.put_position(member_id, ReconciledAssignment.settled(LEFT_STATIC_EPOCH, position.epoch, position.assigned))
