"""The common state of consumer groups (KIP-848) and streams groups (KIP-1071): a member of these must release a partition or task before
another member gets it.

A member moves to its target assignment step by step (`reconciliation.py`). Its current assignment (`position`) has the assigned partitions,
the partitions that it has to revoke, and whether it waits for partitions of other members. In a streams group, its partitions are tasks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.groups.modern.group import DeclaredFacts, EpochGroup
from ottla.groups.states import ASSIGNING, EMPTY, RECONCILING, STABLE, GroupState

LEFT_STATIC_EPOCH = -2  # the epoch of a static member that has left temporarily


class MemberState(Enum):
    """The state of a member's reconciliation, with the numbers of a consumer group's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # the member has not confirmed yet that it has revoked partitions
    UNRELEASED_PARTITIONS = 2  # the member waits for partitions that other members still have
    UNKNOWN = 127


class StaticFacts(DeclaredFacts, Protocol):
    """A member's description of itself in a group with static members."""

    @property
    def instance_id(self) -> str | None: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...


class ReconciledAssignment(NamedTuple):
    """A member's current assignment; the keys are topic ids, or roles of subtopologies."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Any, tuple[int, ...]] = {}
    revoking: Mapping[Any, tuple[int, ...]] = {}
    epochs: Mapping[Any, Mapping[int, int]] = {}
    """The assignment epochs (KIP-1251): the member's epoch when it got each partition that it has or has to revoke."""

    @classmethod
    def settled(cls, epoch: int, previous_epoch: int, assigned: Mapping[Any, tuple[int, ...]]) -> ReconciledAssignment:
        """Returns the current assignment of a stable member that gets all of its partitions in this epoch."""
        epochs = {key: dict.fromkeys(partitions, max(epoch, 0)) for key, partitions in assigned.items()}
        return cls(epoch, previous_epoch, MemberState.STABLE, assigned, {}, epochs)


StaticFactsT = TypeVar("StaticFactsT", bound=StaticFacts)


class ReconcilingGroup(EpochGroup[StaticFactsT, ReconciledAssignment]):
    """One group. `set_*` and `remove_*` apply its records."""

    __slots__ = ("static_members",)

    fields = (*EpochGroup.fields, *__slots__)
    new_position = ReconciledAssignment()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}

    # Questions

    @property
    def state(self) -> GroupState:
        if not self.facts:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(self.is_reconciled(member_id) for member_id in self.facts):
            return STABLE
        return RECONCILING

    def is_reconciled(self, member_id: str) -> bool:
        position = self.position(member_id)
        return position.state is MemberState.STABLE and position.epoch == self.target_epoch

    def is_classic(self, member_id: str) -> bool:
        """Whether the member uses the classic protocol."""
        return False

    @abstractmethod
    def is_free(self, member_id: str, key: Any, partition: int) -> bool:
        """Whether the member may get this partition now, because no other member prevents it."""

    @abstractmethod
    def subscribed_among(self, topics: Iterable[str]) -> set[str]:
        """Returns the subset of `topics` that the group reads."""

    @abstractmethod
    def assignment_epoch(self, member_id: str, topic: str, topic_id: bytes | None, partition: int) -> int | None:
        """Returns the epoch since which the member has had this partition; None if it does not have it."""

    # Applying the log

    def set_member(self, member_id: str, facts: StaticFactsT) -> None:
        self._forget_instance(member_id)  # the member may have had another instance id before
        super().set_member(member_id, facts)
        if facts.instance_id is not None:
            self.static_members[facts.instance_id] = member_id

    def remove_member(self, member_id: str) -> None:
        self._forget_instance(member_id)
        super().remove_member(member_id)

    def _forget_instance(self, member_id: str) -> None:
        facts = self.facts.get(member_id)
        if facts is not None and facts.instance_id is not None and self.static_members.get(facts.instance_id) == member_id:
            del self.static_members[facts.instance_id]
