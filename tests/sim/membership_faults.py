"""Faults: functions that break a rule of static members, of group conversions or of operators, one at a time. The tests show that the
verdicts notice each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups import admin
from ottla.groups.classic import sync
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.member import ClassicMember
from ottla.groups.consumer import migration
from ottla.groups.offsets import commit
from tests.sim.cluster_faults import together
from tests.sim.membership_world import MembershipWorld
from tests.sim.seed_search import catch_seed


def former_process_not_fenced() -> Any:
    """A static member is identified by its instance id alone, so its former process is not fenced (I34)."""

    def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ClassicMember:
        found = group.members.get(member_id if instance_id is None else group.static_members.get(instance_id, ""))
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return found

    check_beat = sync._check_beat

    def check_beat_of_instance(shard: Any, command: Any) -> Any:
        group = shard.groups.get(command.group_id)
        known = group.static_members if type(group) is ClassicGroup else {}
        return check_beat(shard, replace(command, member_id=known.get(command.instance_id, command.member_id)))

    return together(
        [mock.patch.object(ClassicGroup, "check_member", check_member), mock.patch.object(sync, "_check_beat", check_beat_of_instance)]
    )


def restart_loses_assignment() -> Any:
    """The next process of a static member replaces the former one, but does not get its partitions."""
    rename = ClassicGroup.rename

    def rename_and_forget(group: ClassicGroup, member: ClassicMember, member_id: str) -> None:
        rename(group, member, member_id)
        member.assignment = b""

    return mock.patch.object(ClassicGroup, "rename", rename_and_forget)


def downgrade_against_policy() -> Any:
    """A group is downgraded to the classic protocol although `group.consumer.migration.policy` forbids it."""
    return mock.patch.object(migration, "is_downgrade_allowed", lambda _shard: True)


def upgrade_forgets_assignments() -> Any:
    """A group that is upgraded forgets the assignments of its classic members."""
    return mock.patch.object(migration, "read_assignment", lambda *_: {})


def offsets_set_in_use() -> Any:
    """Clients that are not members can commit for a group while it has members."""
    check_classic, check_epoch = commit.check_classic_commit, commit._check_epoch_commit

    def classic(group: Any, member_id: str, instance_id: Any, generation: int, **options: Any) -> None:
        if generation >= 0:
            check_classic(group, member_id, instance_id, generation, **options)

    def epoch(shard: Any, group: Any, command: Any, **options: Any) -> None:
        if command.generation >= 0:
            check_epoch(shard, group, command, **options)

    return mock.patch.multiple(commit, check_classic_commit=classic, _check_epoch_commit=epoch)


def deletion_keeps_offsets() -> Any:
    """When a group is deleted, its committed offsets are kept."""
    deletion = admin._deletion

    def of_group_alone(shard: Any, group_id: str) -> Any:
        logged = deletion(shard, group_id)
        return logged[len(list(shard.offsets.keys_of(group_id))) :]

    return mock.patch.object(admin, "_deletion", of_group_alone)


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        former_process_not_fenced,
        restart_loses_assignment,
        downgrade_against_policy,
        upgrade_forgets_assignments,
        offsets_set_in_use,
        deletion_keeps_offsets,
    )
}
VERDICTS = {
    "former_process_not_fenced": r"former: .* after it has lost its place \(I34\)",
    "restart_loses_assignment": r"not kept: .* \(I34\)",
    "downgrade_against_policy": r"converted: downgrade of .*, the policy is (upgrade|disabled)",
    "upgrade_forgets_assignments": r"taken away: .* \(I34\)",
    "offsets_set_in_use": r"altered in use: .* \(I35\)",
    "deletion_keeps_offsets": r"from nowhere: .* \(I35\)|went away|went back",
}
"""What is said of each fault. Another verdict under it may be true as well, and shows less: it does not count as found."""


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault's verdict, and the message; (0, "") if no seed fails."""
    return catch_seed(FAULTS[name](), lambda seed: MembershipWorld(seed).run(), seeds, first, VERDICTS[name])
