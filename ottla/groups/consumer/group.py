"""The state of one consumer group of the consumer protocol (KIP-848): members, their subscriptions, and the owners of partitions.

`modern/reconciling.py` has the state that streams groups have too.

Invariants: `owners` maps each partition that a member has, or has to revoke, to that member alone (I34).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

from ottla.base.uuids import Uuid
from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from ottla.groups.commands import Protocols
from ottla.groups.modern.reconciling import ReconciledAssignment, ReconcilingGroup
from ottla.groups.states import GroupType


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


class ResolvedRegex(NamedTuple):
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


def _is_in(name: str, names: tuple[str, ...]) -> bool:
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name


def _partitions_of(position: ReconciledAssignment) -> list[tuple[Uuid, int]]:
    """Returns the partitions that a member has or has to revoke."""
    parts = (position.assigned, position.revoking)
    return [(topic_id, partition) for part in parts for topic_id, partitions in part.items() for partition in partitions]


REFERENCE_BYTES = 8
"""Memory of each topic that a regular expression matches, in bytes. 8: a reference, because the topic's name is shared."""


class ConsumerGroup(ReconcilingGroup[MemberFacts]):
    """One group. `set_*` and `remove_*` apply its records."""

    __slots__ = ("owners", "regexes")

    type = GroupType.CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE
    word = "consumer"
    fields = (*ReconcilingGroup.fields, *__slots__)

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.owners: dict[tuple[Uuid, int], str] = {}
        self.regexes: dict[str, ResolvedRegex] = {}

    # Questions

    def is_classic(self, member_id: str) -> bool:
        return self.facts[member_id].classic is not None

    def is_free(self, member_id: str, key: Any, partition: int) -> bool:
        return self.owners.get((key, partition), member_id) == member_id

    def assignment_epoch(self, member_id: str, topic: str, topic_id: Uuid | None, partition: int) -> int | None:
        return None if topic_id is None else self.position(member_id).epochs.get(topic_id, {}).get(partition)

    def topics_of(self, facts: MemberFacts) -> tuple[str, ...]:
        """Returns the topics that the member subscribes to, by name or by regular expression, sorted and without duplicates."""
        if facts.regex is None:
            return facts.topics
        resolved = self.regexes.get(facts.regex)
        if resolved is None or not facts.topics:
            return facts.topics if resolved is None else resolved.topics
        return tuple(sorted({*facts.topics, *resolved.topics}))

    def subscriptions(self) -> list[tuple[str, ...]]:
        """Returns the members' subscriptions, by name or by regular expression."""
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

    # Applying the log

    def set_position(self, member_id: str, position: ReconciledAssignment) -> None:
        has = dict.fromkeys(_partitions_of(position), member_id)
        self._free(member_id, self.positions.get(member_id, self.new_position), kept=has)
        self.positions[member_id] = position
        self.owners.update(has)

    def remove_position(self, member_id: str) -> None:
        self._free(member_id, self.positions.pop(member_id, self.new_position), kept=())

    def _free(self, member_id: str, before: ReconciledAssignment, kept: Container[tuple[Uuid, int]]) -> None:
        """Removes the member as owner of the partitions that it had, except `kept`.

        Kept entries stay in place: after many removals, `copy` takes several times longer.
        """
        for one in _partitions_of(before):
            if one not in kept and self.owners.get(one) == member_id:
                del self.owners[one]

    def set_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        self.regexes[regex] = resolved._replace(topics=self.shared_topics(resolved.topics))

    def remove_regex(self, regex: str) -> None:
        self.regexes.pop(regex, None)
