"""Records the history of consumer groups and judges it: which member owned which partition in which generation, and how committed offsets
moved. When a member gets a partition, it reads the committed offset and commits from there on; this time with the partition is called a
term. The offset may be old if the member was removed and does not know it; then its commits are refused. A term is therefore judged when
one of its commits is acknowledged. It must have begun at or after the last commit that was acknowledged before, and the commit must not be
below a commit that was acknowledged meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.types import TopicPartition

Where = tuple[str, TopicPartition]
"""Group and partition."""
UNJUDGED = -1
"""The era of a term that began while it was unknown whether an operator had set the offset."""


class Term(NamedTuple):
    """One member's time with one partition: the committed offset that it read, the offset that had been acknowledged before it asked, and
    how often operators had set the offset before (the era).
    """

    where: Where
    member: str
    generation: int
    start: int
    floor: int
    era: int = 0


class Attempt(NamedTuple):
    """One commit of a term: its offset, and the offset that had been acknowledged before it was sent; the era; and whether the member had
    been replaced by another process, or removed by the coordinator, by then.
    """

    term: Term
    end: int
    floor: int
    era: int = 0
    is_former: bool = False


class Seat(NamedTuple):
    """A static member with one member id: the times when it asked for the id and when it first got partitions."""

    member: str
    asked_ms: int
    confirmed_ms: int


class GroupHistory:
    """See above. Every offset is exclusive: the end of what was consumed."""

    def __init__(self) -> None:
        self.acknowledged: dict[Where, int] = {}
        self.owners: dict[tuple[str, int, TopicPartition], str] = {}
        self.processed: dict[Where, set[str]] = {}
        self.commits = self.terms = 0
        self.eras: dict[Where, int] = {}
        self.altered: dict[Where, set[int]] = {}
        """What operators have set, or 0 where they have deleted."""
        self.seats: dict[tuple[str, str], dict[str, Seat]] = {}
        self._given: dict[tuple[str, int, str], list[TopicPartition]] = {}
        self._unsettled: dict[Where, None] = {}
        self._possible: dict[Where, dict[int, int]] = {}

    def own(self, group_id: str, generation: int, member: str, places: list[TopicPartition]) -> None:
        """Notes the partitions that a coordinator gives to a member in a generation (or epoch)."""
        for place in places:
            owner = self.owners.setdefault((group_id, generation, place), member)
            assert owner == member, f"two owners: {place} of {group_id} in generation {generation} goes to {member}, {owner} has it (I34)"

    def floor(self, where: Where) -> int:
        """Returns the offset that the answer to a request of now must have at least."""
        return self.acknowledged.get(where, 0)

    def begin(self, where: Where, member: str, generation: int, start: int, floor: int) -> Term:
        """Notes the committed offset that a member has read."""
        known = start <= 0 or where in self._unsettled or self._possible.get(where, {}).get(start, 0) > 0
        assert known, f"from nowhere: {member} found {start} committed for {where}, which no member has committed (I35)"
        self.terms += 1
        era = UNJUDGED if where in self._unsettled else self.eras.get(where, 0)
        return Term(where, member, generation, max(start, 0), floor, era)

    def attempt(self, term: Term, end: int, is_former: bool = False) -> Attempt:
        """Notes a commit that is sent; it may take effect until it is refused."""
        assert end >= term.start, f"{term} commits {end}"
        ends = self._possible.setdefault(term.where, {})
        ends[end] = ends.get(end, 0) + 1
        return Attempt(term, end, self.floor(term.where), self.eras.get(term.where, 0), is_former)

    def refuse(self, attempt: Attempt) -> None:
        """Notes that this attempt has had no effect and will have none."""
        if attempt.era == self.eras.get(attempt.term.where, 0):
            self._possible[attempt.term.where][attempt.end] -= 1

    def acknowledge(self, attempt: Attempt) -> None:
        """Notes that this attempt was answered with success."""
        term, end, floor, era, is_former = attempt
        if term.era == UNJUDGED:
            return
        assert not is_former, f"former: {term.member} commits for {term.where} after it has lost its place (I34)"
        assert term.era == era, f"altered in use: {term.member} commits {end} of {term.where}, found before an operator set it (I35)"
        who = f"went back: {term.member} commits {end} of {term.where} in generation {term.generation}"
        assert end >= floor, f"{who}, {floor} had been acknowledged before (I35)"
        assert term.start >= term.floor, f"{who}: it found {term.start}, {term.floor} had been acknowledged before it asked (I35)"
        self.commits += 1
        self.acknowledged[term.where] = max(floor, self.floor(term.where), end)

    # Static members and operators

    def sit(self, instance: tuple[str, str], member: str, asked_ms: int, now_ms: int) -> None:
        """Notes that a static member has got its partitions with this member id, for which it asked at `asked_ms`. It is called again if
        the member was replaced and has asked again; members of KIP-848 use the same id for that.
        """
        seats = self.seats.setdefault(instance, {})
        if member not in seats or asked_ms > seats[member].asked_ms:
            seats[member] = Seat(member, asked_ms, now_ms)

    def is_former(self, group_id: str, instance_id: str | None, member: str) -> bool:
        """Whether a process that asked later for a member id has replaced this static member."""
        seats = {} if instance_id is None else self.seats.get((group_id, instance_id), {})
        own = seats.get(member)
        return own is not None and any(seat.asked_ms > own.confirmed_ms for seat in seats.values())

    def alter(self, where: Where, end: int) -> None:
        """Notes that an operator tries to set the committed offset, or with 0 to delete it. This may succeed only while the group has no
        members.
        """
        self.altered.setdefault(where, set()).add(end)
        self._unsettled[where] = None

    def leave(self, where: Where) -> None:
        """Notes that the operator's request was refused."""
        self._unsettled.pop(where, None)

    def begin_era(self, where: Where, end: int) -> None:
        """Notes that the offset was set. Members that have read the offset before must not commit any more."""
        self.eras[where] = self.eras.get(where, 0) + 1
        self.acknowledged[where] = end
        self._possible[where] = {end: 1}
        self._unsettled.pop(where, None)

    def forget_owners(self, group_id: str) -> None:
        """Notes that the group was deleted; its generations begin at the start again."""
        self.owners = {key: owner for key, owner in self.owners.items() if key[0] != group_id}
        self._given = {key: given for key, given in self._given.items() if key[0] != group_id}

    def keep(self, seat: tuple[str, int, str], given: list[TopicPartition]) -> None:
        """Notes the assignment of a static member of a classic group in a generation. All its processes must get the same assignment."""
        before = self._given.setdefault(seat, given)
        assert given == before, f"not kept: {seat} had {before} and gets {given} (I34)"

    def judge(self, where: Where, committed: int, visible: list[tuple[int, str]]) -> None:
        """Judges the committed offset at the end of the run; `visible` are the records of the partition with their offsets."""
        floor, committed = self.floor(where), max(committed, 0)
        assert committed >= floor, f"lost commit: {where} is at {committed}, {floor} was acknowledged (I35)"
        known = committed <= 0 or self._possible.get(where, {}).get(committed, 0) > 0
        assert known, f"from nowhere: {where} is at {committed}, which no member has committed (I35)"
        processed = self.processed.get(where, set())
        missed = [value for offset, value in visible if offset < committed and value not in processed]
        assert not missed, f"skipped: {where} is at {committed}, no member has processed {missed[:3]}"
