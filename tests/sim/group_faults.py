"""Faults: functions that break a rule of group coordinators on purpose, one at a time. The tests show that the verdicts of `group_world.py`
notice each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from ottla.base.types import GROUP_METADATA_TOPIC
from ottla.groups.consumer import heartbeat
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.coordinator import GroupCoordinator
from ottla.groups.modern.reconciling import ReconciledAssignment
from ottla.groups.offsets import commit
from ottla.replication.leader import Leader
from tests.sim.cluster_faults import together
from tests.sim.faults import forget_markers_of_groups_on_load
from tests.sim.group_world import GroupWorld
from tests.sim.seed_search import catch_seed


def answer_from_cache() -> Any:
    """A coordinator still answers from memory after its partition has moved (I37). The fault breaks two rules: the coordinator's state is
    dropped, and records of an ended term are not committed.
    """
    return together(
        [
            mock.patch.object(GroupCoordinator, "resign", lambda _hosts, _index: None),
            mock.patch.object(Leader, "committed_end", lambda leader: leader._state.high_watermark),
        ]
    )


def acknowledge_before_replicated() -> Any:
    """A commit is acknowledged when the leader has it, before its followers do."""
    committed_end = Leader.committed_end

    def end(leader: Leader) -> int:
        is_of_groups = leader._state.topic_partition.topic == GROUP_METADATA_TOPIC
        return 1 << 62 if is_of_groups else committed_end(leader)

    return mock.patch.object(Leader, "committed_end", end)


def accept_any_generation() -> Any:
    """Commits are accepted from members of former generations, and from former members (I33)."""
    return mock.patch.multiple(commit, check_classic_commit=lambda *_, **__: None, _check_epoch_commit=lambda *_, **__: None)


def give_before_revoked() -> Any:
    """A member gets its whole target assignment immediately, even if other members still have parts of it (I34)."""

    def next_position(group: ConsumerGroup, member_id: str, _owned: Any) -> ReconciledAssignment:
        position, target = group.position(member_id), group.target.get(member_id, {})
        if position.epoch == group.target_epoch and dict(position.assigned) == target:
            return position
        return ReconciledAssignment.settled(group.target_epoch, position.epoch, dict(target))

    return mock.patch.object(heartbeat, "next_position", next_position)


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        answer_from_cache,
        acknowledge_before_replicated,
        accept_any_generation,
        give_before_revoked,
        forget_markers_of_groups_on_load,
    )
}
VERDICTS = {
    "answer_from_cache": r"answers \w+ and does not lead .* \(I37\)",
    "acknowledge_before_replicated": r"answers \w+ of a change before \d+, the high watermark is \d+: it may be lost \(I14\)",
    "accept_any_generation": r"went back: .* \(I35\)",
    "give_before_revoked": r"two owners: .* \(I34\)",
    "forget_markers_of_groups_on_load": r"lost commit: .* \(I35\)|\(I36\)|OffsetFetch of .* has no answer",
}
"""What is said of each fault. Another verdict under it may be true as well, and shows less: it does not count as found."""


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault's verdict, and the message; (0, "") if no seed fails."""
    return catch_seed(FAULTS[name](), lambda seed: GroupWorld(seed).run(), seeds, first, VERDICTS[name])
