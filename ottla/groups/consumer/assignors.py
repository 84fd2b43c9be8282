"""Assigns partitions to the members of a consumer group: the two server-side assignors of KIP-848.

`uniform` balances the number of partitions per member, and moves few partitions. If all members subscribe to the same topics, the numbers
differ by one at most, as few partitions as possible move, and one pass suffices. If subscriptions differ, members keep their partitions,
and each free partition is assigned to the topic's least loaded subscriber. Then partitions move from the most to the least loaded
subscriber of a topic, until no single move helps or after `ROUNDS_MAX` rounds.

`range` gives each topic's partitions in consecutive runs to its subscribers: static members in the order of their instance ids, then other
members in the order of their ids. Topics with the same subscribers and equally many partitions are therefore co-partitioned. `range` does
not consider the previous assignment.

Both assignors are generators, so that a caller can do other work between their steps. A step processes about `WORK_PER_STEP` members and
partitions. It may be longer, because it divides neither the target of a member nor, except to assign partitions one by one, a topic.

Invariants: every partition of a subscribed topic has exactly one member, and that member subscribes to the topic; the result depends only
on the arguments. Cost: the time of `uniform` over equal subscriptions is nearly linear in members and partitions. It also sorts the
members, and the partitions of each member.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.uuids import Uuid
from ottla.groups.modern.group import PartitionsByTopic

ROUNDS_MAX = 50  # rounds of moves between unequal subscriptions, at most; each round improves the balance
WORK_PER_STEP = 1_000
"""Approximate number of members and partitions processed in one step."""


class MemberSpec(NamedTuple):
    """The properties of a member that an assignor uses."""

    member_id: str
    instance_id: str | None
    topics: frozenset[Uuid]
    target: Mapping[Uuid, Sequence[int]]  # the member's current target assignment


Assigning = Generator[None, None, dict[str, PartitionsByTopic]]
Assignor = Callable[[Sequence[MemberSpec], Mapping[Uuid, int]], Assigning]
"""(members, partition counts of the topics) -> a generator of steps that returns each member's assignment."""


def assign_uniform(members: Sequence[MemberSpec], counts: Mapping[Uuid, int]) -> Assigning:
    if not members:
        return {}
    members = sorted(members)
    if _read_the_same(members):
        first = members[0].topics
        return (yield from _assign_equal(members, {topic: count for topic, count in counts.items() if topic in first}))
    return (yield from _Balance(members, counts).steps())


def assign_range(members: Sequence[MemberSpec], counts: Mapping[Uuid, int]) -> Assigning:
    ordered = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id, member.member_id))
    readers = yield from _readers(ordered, counts)
    result: dict[str, PartitionsByTopic] = {member.member_id: {} for member in members}
    work = 0
    for topic in sorted(readers):
        count, of_topic, start = counts[topic], readers[topic], 0
        for place, index in enumerate(of_topic[:count]):
            size = count // len(of_topic) + (place < count % len(of_topic))
            result[ordered[index].member_id][topic] = tuple(range(start, start + size))
            start += size
        work += count
        if work >= WORK_PER_STEP:
            work = 0
            yield
    return result


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _read_the_same(members: Sequence[MemberSpec]) -> bool:
    first = members[0].topics
    return all(member.topics is first or member.topics == first for member in members)


def _readers(members: Sequence[MemberSpec], counts: Mapping[Uuid, int]) -> Generator[None, None, dict[Uuid, list[int]]]:
    if members and _read_the_same(members):
        everyone = list(range(len(members)))
        return {topic: everyone for topic in counts if topic in members[0].topics}
    readers: dict[Uuid, list[int]] = {}
    work = 0
    for index, member in enumerate(members):
        for topic in sorted(member.topics):
            if topic in counts:
                readers.setdefault(topic, []).append(index)
        work += len(member.topics)
        if work >= WORK_PER_STEP:
            work = 0
            yield
    return readers


# Equal subscriptions


def _assign_equal(members: Sequence[MemberSpec], counts: Mapping[Uuid, int]) -> Assigning:
    quota, extra = divmod(sum(counts.values()), len(members))
    taken = {topic: bytearray(count) for topic, count in counts.items()}
    kept: list[dict[Uuid, list[int]]] = []
    room: list[int] = []
    work = 0
    for member in members:
        mine, size, is_over = _keep(member, taken, quota, extra > 0)
        extra -= is_over
        kept.append(mine)
        room.append(quota - size + is_over)
        work += 1 + size
        if work >= WORK_PER_STEP:
            work = 0
            yield
    for index in range(len(members)):
        # A member below the quota may take one of the extra partitions that no member kept.
        if not extra:
            break
        if room[index] > 0 or _size(kept[index]) == quota:
            room[index] += 1
            extra -= 1
    yield from _deal(members, kept, room, taken)
    result: dict[str, PartitionsByTopic] = {}
    work = 0
    for member, mine in zip(members, kept, strict=True):
        result[member.member_id] = {topic: tuple(sorted(partitions)) for topic, partitions in mine.items()}
        work += 1 + _size(mine)
        if work >= WORK_PER_STEP:
            work = 0
            yield
    return result


def _size(assignment: Mapping[Uuid, Sequence[int]]) -> int:
    return sum(map(len, assignment.values()))


def _keep(member: MemberSpec, taken: dict[Uuid, bytearray], quota: int, has_extra: bool) -> tuple[dict[Uuid, list[int]], int, bool]:
    """Returns the partitions of its current target that the member keeps, their number, and whether they exceed the quota. The limit is the
    quota, plus one while there are extra partitions. Marks the partitions in `taken`.
    """
    limit = quota + has_extra
    mine: dict[Uuid, list[int]] = {}
    size = 0
    for topic, partitions in member.target.items():
        marks = taken.get(topic)
        if marks is None:
            continue
        for partition in partitions:
            if size < limit and partition < len(marks) and not marks[partition]:
                marks[partition] = 1
                mine.setdefault(topic, []).append(partition)
                size += 1
    return mine, size, size > quota


def _deal(
    members: Sequence[MemberSpec], kept: list[dict[Uuid, list[int]]], room: list[int], taken: dict[Uuid, bytearray]
) -> Generator[None, None, None]:
    """Assigns the partitions that no member kept: adds each partition to `kept` of the next member that may get more partitions (`room` has
    how many). The members take turns, so the partitions of each topic are spread over them."""
    waiting = [index for index in range(len(members)) if room[index] > 0]
    turn = work = 0
    for topic, marks in taken.items():
        for partition, mark in enumerate(marks):
            if mark:
                continue
            turn %= len(waiting)
            index = waiting[turn]
            kept[index].setdefault(topic, []).append(partition)
            room[index] -= 1
            if room[index]:
                turn += 1
            else:
                del waiting[turn]
            work += 1
            if not work % WORK_PER_STEP:
                yield
    assert not waiting, "an assignment does not use up its quotas"


# Unequal subscriptions


class _Balance:
    """The members by index, the owner of each partition, and the number of partitions of each member."""

    def __init__(self, members: Sequence[MemberSpec], counts: Mapping[Uuid, int]) -> None:
        self._members = members
        self._counts = counts
        self._readers: dict[Uuid, list[int]] = {}
        self._topics: list[Uuid] = []
        self._owners: dict[Uuid, list[int]] = {}
        self._load = [0] * len(members)
        self._work = 0

    def _has_worked(self, amount: int) -> bool:
        """Adds to the work done in this step; returns whether the step is over."""
        self._work += amount
        if self._work < WORK_PER_STEP:
            return False
        self._work = 0
        return True

    def steps(self) -> Assigning:
        self._readers = yield from _readers(self._members, self._counts)
        # Topics with few subscribers first, because few members can take their partitions.
        self._topics = sorted(self._readers, key=lambda topic: (len(self._readers[topic]), topic))
        self._owners = {topic: [-1] * self._counts[topic] for topic in self._topics}
        yield from self._keep()
        for topic in self._topics:
            yield from self._fill(topic)
        for _ in range(ROUNDS_MAX):
            has_moved = False
            for topic in self._topics:
                has_moved |= yield from self._even_out(topic)
            if not has_moved:
                break
        return (yield from self._result())

    def _result(self) -> Assigning:
        result: dict[str, PartitionsByTopic] = {member.member_id: {} for member in self._members}
        for topic in self._topics:
            mine: dict[int, list[int]] = {}
            for partition, owner in enumerate(self._owners[topic]):
                mine.setdefault(owner, []).append(partition)
            for owner, partitions in mine.items():
                result[self._members[owner].member_id][topic] = tuple(partitions)
            if self._has_worked(self._counts[topic]):
                yield
        return result

    def _keep(self) -> Generator[None, None, None]:
        for index, member in enumerate(self._members):
            for topic, partitions in member.target.items():
                owners = self._owners.get(topic)
                if owners is None or topic not in member.topics:
                    continue
                for partition in partitions:
                    if partition < len(owners) and owners[partition] < 0:
                        owners[partition] = index
                        self._load[index] += 1
            if self._has_worked(1 + _size(member.target)):
                yield

    def _fill(self, topic: Uuid) -> Generator[None, None, None]:
        """Assigns each free partition of a topic to the least loaded subscriber."""
        owners, load = self._owners[topic], self._load
        if -1 not in owners:
            return
        heap = [(load[index], index) for index in self._readers[topic]]
        heapq.heapify(heap)
        if self._has_worked(len(heap)):
            yield
        for partition, owner in enumerate(owners):
            if owner < 0:
                _, index = heap[0]
                owners[partition] = index
                load[index] += 1
                heapq.heapreplace(heap, (load[index], index))
                if self._has_worked(1):
                    yield

    def _even_out(self, topic: Uuid) -> Generator[None, None, bool]:
        """Moves partitions of one topic from its most to its least loaded subscriber while that helps; returns whether any was moved."""
        load, readers = self._load, self._readers[topic]
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            held.setdefault(owner, []).append(partition)
        if self._has_worked(self._counts[topic] + len(readers) // 2):
            yield
        if max([load[index] for index in held], default=0) - min([load[index] for index in readers]) <= 1:
            return False
        least = [(load[index], index) for index in readers]
        most = [(-load[index], index) for index in held]
        heapq.heapify(least)
        heapq.heapify(most)
        has_moved = False
        while most:
            giver, taker = most[0][1], least[0][1]
            if -most[0][0] != load[giver]:
                heapq.heapreplace(most, (-load[giver], giver))
            elif least[0][0] != load[taker]:
                heapq.heapreplace(least, (load[taker], taker))
            elif load[giver] - load[taker] <= 1:
                break
            elif not held[giver]:
                heapq.heappop(most)
            else:
                partition = held[giver].pop()
                self._owners[topic][partition] = taker
                held.setdefault(taker, []).append(partition)
                load[giver] -= 1
                load[taker] += 1
                has_moved = True
            if self._has_worked(1):
                yield
        return has_moved
