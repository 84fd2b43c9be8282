"""The state of one consumer group of the consumer protocol (KIP-848): members, their subscriptions, and the owners of partitions.

A member moves to its target assignment step by step (`reconciliation.py`). Its current assignment (`position`) has the assigned partitions,
the partitions that it has to revoke, and whether it waits for partitions of other members.

Invariants: `owners` maps each partition that a member has, or has to revoke, to that member alone (I34).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.base.uuids import Uuid
from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from ottla.groups.commands import Protocols
from ottla.groups.modern.group import EpochGroup
from ottla.groups.states import ASSIGNING, EMPTY, RECONCILING, STABLE, GroupState, GroupType

LEFT_STATIC_EPOCH = -2  # the epoch of a static member that has left temporarily


class MemberState(Enum):
    """The state of a member's reconciliation, with the numbers of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has not confirmed yet that it has revoked partitions
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others still have
    UNKNOWN = 127


class ClassicFacts(NamedTuple):
    """The classic protocols and session timeout of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


class MemberFacts(NamedTuple):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicFacts | None = None


class ConsumerAssignment(NamedTuple):
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Uuid, tuple[int, ...]] = {}
    revoking: Mapping[Uuid, tuple[int, ...]] = {}
    epochs: Mapping[Uuid, Mapping[int, int]] = {}
    """The assignment epochs (KIP-1251): the member's epoch when it got each partition that it has or has to revoke."""

    @classmethod
    def settled(cls, epoch: int, previous_epoch: int, assigned: Mapping[Uuid, tuple[int, ...]]) -> ConsumerAssignment:
        """Returns the current assignment of a stable member that gets all of its partitions in this epoch."""
        epochs = {topic_id: dict.fromkeys(partitions, max(epoch, 0)) for topic_id, partitions in assigned.items()}
        return cls(epoch, previous_epoch, MemberState.STABLE, assigned, {}, epochs)


class ResolvedRegex(NamedTuple):
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


def _is_in(name: str, names: tuple[str, ...]) -> bool:
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name


REFERENCE_BYTES = 8
"""Memory of each topic that a regular expression matches, in bytes. 8: a reference, because the topic's name is shared."""


class ConsumerGroup(EpochGroup[MemberFacts, ConsumerAssignment]):
    """One group. `set_*` and `remove_*` apply its records."""

    __slots__ = ("owners", "regexes", "static_members")

    type = GroupType.CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE
    word = "consumer"
    fields = (*EpochGroup.fields, *__slots__)
    new_position = ConsumerAssignment()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        self.owners: dict[tuple[Uuid, int], str] = {}
        self.regexes: dict[str, ResolvedRegex] = {}

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

    def topics_of(self, facts: MemberFacts) -> tuple[str, ...]:
        """Returns the topics that the member subscribes to, by name or by regular expression, sorted and without duplicates."""
        if facts.regex is None:
            return facts.topics
        resolved = self.regexes.get(facts.regex)
        if resolved is None or not facts.topics:
            return facts.topics if resolved is None else resolved.topics
        return tuple(sorted({*facts.topics, *resolved.topics}))

    def subscriptions(self) -> list[tuple[str, ...]]:
        """The members' subscriptions, by name or by regular expression."""
        found = [self.regexes[regex].topics for regex in self.used_regexes() if regex in self.regexes]
        return list({id(names): names for names in [*super().subscriptions(), *found]}.values())

    def subscribed_among(self, topics: Iterable[str]) -> set[str]:
        subscriptions = self.subscriptions()
        return {topic for topic in topics if any(_is_in(topic, names) for names in subscriptions)}

    def used_regexes(self) -> dict[str, None]:
        return {facts.regex: None for facts in self.facts.values() if facts.regex is not None}

    def preferred_assignor(self, known: tuple[str, ...]) -> str:
        """Returns the configured assignor that most members ask for. In a tie, or without votes, returns the tied assignor that is
        configured first.
        """
        votes = dict.fromkeys(known, 0)
        for facts in self.facts.values():
            if facts.assignor in votes:
                votes[facts.assignor] += 1
        return max(known, key=lambda name: votes[name])

    def held_bytes(self) -> int:
        return super().held_bytes() + REFERENCE_BYTES * sum([len(resolved.topics) for resolved in self.regexes.values()])

    # The fold of the log

    def set_member(self, member_id: str, facts: MemberFacts) -> None:
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

    def set_position(self, member_id: str, position: ConsumerAssignment) -> None:
        self.remove_position(member_id)
        self.positions[member_id] = position
        for assignment in (position.assigned, position.revoking):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    self.owners[topic_id, partition] = member_id

    def remove_position(self, member_id: str) -> None:
        before = self.positions.pop(member_id, None)
        if before is None:
            return
        for assignment in (before.assigned, before.revoking):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member_id:
                        del self.owners[topic_id, partition]

    def set_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        self.regexes[regex] = resolved._replace(topics=self.shared_topics(resolved.topics))

    def remove_regex(self, regex: str) -> None:
        self.regexes.pop(regex, None)
