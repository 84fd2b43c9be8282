"""Returns the hard state of a group coordinator's state machine, to compare a running one with a replayed one (P9, I36)."""

from __future__ import annotations

from typing import Any

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.machine import GroupMachine
from ottla.groups.modern.group import EpochGroup


def hard_state(machine: GroupMachine) -> dict[str, Any]:
    """Returns the groups of each kind by id, and the committed and pending offsets. They are equal for state machines that have applied the
    same records."""
    shard = machine.shard
    classic = [group for group in shard.groups.values() if isinstance(group, ClassicGroup)]
    with_epochs = [group for group in shard.groups.values() if isinstance(group, EpochGroup)]
    return {
        "classic groups": {group.group_id: group.stored for group in classic if group.stored is not None},
        "groups with epochs": {
            group.group_id: (type(group).__name__, {name: getattr(group, name) for name in group.fields}) for group in with_epochs
        },
        "offsets": shard.offsets.committed,
        "pending": shard.offsets.pending,
        "rewrites": dict(shard.offsets.rewrites),
    }
