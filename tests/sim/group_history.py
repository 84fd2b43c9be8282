"""The history of consumer groups, and its verdicts: who owned what in which generation, and how committed offsets moved.

A member reads what is committed when it gets a partition (a term), and commits from there on. What it reads may be old, if it is a member
no more and does not know: then its commits are refused. So a term is judged when one of its commits is acknowledged: it must have begun
where the last one that was acknowledged before had ended, or later, and must not go back behind one that was acknowledged meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.types import TopicPartition

Where = tuple[str, TopicPartition]
"""Group and partition."""


class Term(NamedTuple):
    """One member's time with one partition: what it found committed, and what had been acknowledged before it asked."""

    where: Where
    member: str
    generation: int
    start: int
    floor: int


class Attempt(NamedTuple):
    """One commit of a term: up to where, and what had been acknowledged before it was sent."""

    term: Term
    end: int
    floor: int


class GroupHistory:
    """See above. Every offset is exclusive: the end of what was consumed."""

    def __init__(self) -> None:
        self.acknowledged: dict[Where, int] = {}
        self.owners: dict[tuple[str, int, TopicPartition], str] = {}
        self.processed: dict[Where, set[str]] = {}
        self.commits = self.terms = 0
        self._possible: dict[Where, dict[int, int]] = {}

    def own(self, group_id: str, generation: int, member: str, places: list[TopicPartition]) -> None:
        """Notes the partitions that a coordinator gives to a member in a generation (or epoch)."""
        for place in places:
            owner = self.owners.setdefault((group_id, generation, place), member)
            assert owner == member, f"two owners: {place} of {group_id} in generation {generation} goes to {member}, {owner} has it (I34)"

    def floor(self, where: Where) -> int:
        """What an answer to a question of now must not fall behind."""
        return self.acknowledged.get(where, 0)

    def begin(self, where: Where, member: str, generation: int, start: int, floor: int) -> Term:
        """Notes what a member found committed."""
        known = start <= 0 or self._possible.get(where, {}).get(start, 0) > 0
        assert known, f"from nowhere: {member} found {start} committed for {where}, which no member has committed (I35)"
        self.terms += 1
        return Term(where, member, generation, max(start, 0), floor)

    def attempt(self, term: Term, end: int) -> Attempt:
        """Notes a commit that is sent; it may take effect until it is refused."""
        assert end >= term.start, f"{term} commits {end}"
        ends = self._possible.setdefault(term.where, {})
        ends[end] = ends.get(end, 0) + 1
        return Attempt(term, end, self.floor(term.where))

    def refuse(self, attempt: Attempt) -> None:
        """Notes that this attempt has had no effect and will have none."""
        self._possible[attempt.term.where][attempt.end] -= 1

    def acknowledge(self, attempt: Attempt) -> None:
        """Notes that this attempt was answered with success."""
        term, end, floor = attempt
        who = f"went back: {term.member} commits {end} of {term.where} in generation {term.generation}"
        assert end >= floor, f"{who}, {floor} had been acknowledged before (I35)"
        assert term.start >= term.floor, f"{who}: it found {term.start}, {term.floor} had been acknowledged before it asked (I35)"
        self.commits += 1
        self.acknowledged[term.where] = max(floor, self.floor(term.where), end)

    def judge(self, where: Where, committed: int, visible: list[tuple[int, str]]) -> None:
        """Judges what is committed when all is over; `visible` are the records of the partition with their offsets."""
        floor, committed = self.floor(where), max(committed, 0)
        assert committed >= floor, f"lost commit: {where} is at {committed}, {floor} was acknowledged (I35)"
        known = committed <= 0 or self._possible.get(where, {}).get(committed, 0) > 0
        assert known, f"from nowhere: {where} is at {committed}, which no member has committed (I35)"
        processed = self.processed.get(where, set())
        missed = [value for offset, value in visible if offset < committed and value not in processed]
        assert not missed, f"skipped: {where} is at {committed}, no member has processed {missed[:3]}"
