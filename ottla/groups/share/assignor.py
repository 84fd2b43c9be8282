"""Assigns partitions to the members of a share group: the server-side assignor `simple` of KIP-932.

A partition may have several readers. Topics with the same subscribers form a pool. If a pool has at least as many partitions as members,
each partition gets one reader, and the partitions are spread evenly. Otherwise each partition gets as many readers as are needed to give
every member a partition. Members keep their previous partitions as far as the result stays even.

Invariants: every partition of a subscribed topic has a reader, and its readers subscribe to the topic. Every member of a pool gets a
partition of it, and two members of a pool differ by at most one partition. The result depends only on the arguments. Cost: n log n in the
assigned partitions, and one look-up for each topic that a member subscribes to. It is a generator with short steps
(`groups/modern/update.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.uuids import Uuid
from ottla.groups.modern.group import PartitionsByTopic

ShareAssignments = dict[str, PartitionsByTopic]
Spot = tuple[Uuid, int]

DEALT_PER_STEP = 300
"""Partitions assigned in one step, which takes about a millisecond."""
SEEN_PER_STEP = 5_000
"""Names read in one step."""


class ShareMember(NamedTuple):
    member_id: str
    topics: frozenset[Uuid]
    target: Mapping[Uuid, Sequence[int]]  # the member's previous target assignment


def assign_simple(members: Sequence[ShareMember], partitions: Mapping[Uuid, Sequence[int]]) -> Generator[None, None, ShareAssignments]:
    """Returns each member's assignment. `partitions` are the assignable partitions of each topic."""
    members = sorted(members, key=lambda member: member.member_id)
    pools = yield from _pools(members, partitions)
    chosen: list[set[Spot]] = [set() for _ in members]
    work = 0
    for pool in sorted(pools, key=lambda pool: (len(pool), pool)):
        # Pools with few readers first: in later pools, ties favour members with few partitions so far.
        spots = {topic: sorted(partitions[topic]) for topic in pools[pool]}
        dealt = yield from _Pool(members, pool, spots, [len(chosen[index]) for index in pool]).run()
        for index, mine in zip(pool, dealt, strict=True):
            chosen[index] |= mine
        work += len(pool)
        if work >= DEALT_PER_STEP:
            work = 0
            yield
    assignments: ShareAssignments = {}
    for member, mine in zip(members, chosen, strict=True):
        assignments[member.member_id] = _by_topic(mine)
        work += len(mine)
        if work >= DEALT_PER_STEP:
            work = 0
            yield
    return assignments


def _pools(
    members: Sequence[ShareMember], partitions: Mapping[Uuid, Sequence[int]]
) -> Generator[None, None, dict[tuple[int, ...], list[Uuid]]]:
    """Groups the topics by their subscribers. Members with equal subscriptions are processed together."""
    alike: dict[frozenset[Uuid], list[int]] = {}
    for index, member in enumerate(members):
        alike.setdefault(member.topics, []).append(index)
    readers: dict[Uuid, list[int]] = {}
    work = 0
    for kind, subscribed in enumerate(alike):
        for topic in subscribed:
            readers.setdefault(topic, []).append(kind)
        work += len(subscribed)
        if work >= SEEN_PER_STEP:
            work = 0
            yield
    indexes = list(alike.values())
    by_kinds: dict[tuple[int, ...], list[Uuid]] = {}
    for topic in sorted(partitions):
        if partitions[topic] and topic in readers:
            by_kinds.setdefault(tuple(readers[topic]), []).append(topic)
            work += len(readers[topic])
            if work >= SEEN_PER_STEP:
                work = 0
                yield
    pools: dict[tuple[int, ...], list[Uuid]] = {}
    for kinds, topics in by_kinds.items():
        pool = tuple(sorted(index for kind in kinds for index in indexes[kind]))
        pools[pool] = topics
        work += len(pool)
        if work >= SEEN_PER_STEP:
            work = 0
            yield
    return pools


def _by_topic(spots: set[Spot]) -> PartitionsByTopic:
    found: dict[Uuid, list[int]] = {}
    for topic, partition in sorted(spots):
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(partitions) for topic, partitions in found.items()}


SHARE_ASSIGNORS = {"simple": assign_simple}


class _Pool:
    """A pool of topics with the same readers, which are numbered from 0 here."""

    def __init__(
        self, members: Sequence[ShareMember], pool: Sequence[int], partitions: Mapping[Uuid, Sequence[int]], burden: list[int]
    ) -> None:
        """`partitions`: the sorted partitions of each of the pool's topics."""
        self._targets = [members[index].target for index in pool]
        self._burden = burden  # each reader's number of partitions from earlier pools; breaks ties
        self._topics = list(partitions)
        self._spots = [(topic, partition) for topic in partitions for partition in partitions[topic]]
        size, count = len(pool), len(self._spots)
        self._wanted = -(-size // count)  # readers of each partition, rounded up
        self._quota, self._extra = divmod(self._wanted * count, size)
        self._mine: list[set[Spot]] = [set() for _ in pool]
        self._missing = dict.fromkeys(self._spots, self._wanted)

    def run(self) -> Generator[None, None, list[set[Spot]]]:
        yield from self._keep()
        yield from self._fill()
        yield from self._even_out()
        return self._mine

    def _keep(self) -> Generator[None, None, None]:
        """Lets members keep previous partitions: at most the quota, or one more while there are extra partitions."""
        missing, extra, work = self._missing, self._extra, 0
        for mine, target in zip(self._mine, self._targets, strict=True):
            limit = self._quota + (extra > 0)
            for topic in self._topics:
                for partition in target.get(topic, ()):
                    spot = (topic, partition)
                    if len(mine) < limit and missing.get(spot) and spot not in mine:
                        missing[spot] -= 1
                        mine.add(spot)
            extra -= len(mine) > self._quota
            work += len(mine) + len(self._topics)
            if work >= DEALT_PER_STEP:
                work = 0
                yield

    def _fill(self) -> Generator[None, None, None]:
        """Gives each partition its missing readers: the members with the fewest partitions."""
        heap = [(len(mine), burden, index) for index, (mine, burden) in enumerate(zip(self._mine, self._burden, strict=True))]
        heapq.heapify(heap)
        work = 0
        for spot in self._spots:
            passed = []
            while self._missing[spot]:
                load, burden, index = heapq.heappop(heap)
                if spot in self._mine[index]:
                    passed.append((load, burden, index))
                    continue
                self._mine[index].add(spot)
                self._missing[spot] -= 1
                passed.append((load + 1, burden, index))
            for entry in passed:
                heapq.heappush(heap, entry)
            work += len(passed) + 1
            if work >= DEALT_PER_STEP:
                work = 0
                yield

    def _even_out(self) -> Generator[None, None, None]:
        """Moves partitions from members with at least two more than another member to that member."""
        mine, work = self._mine, 0
        least = [(len(held), index) for index, held in enumerate(mine)]
        most = [(-len(held), index) for index, held in enumerate(mine)]
        heapq.heapify(least)
        heapq.heapify(most)
        while True:
            giver, taker = most[0][1], least[0][1]
            if -most[0][0] != len(mine[giver]):
                heapq.heapreplace(most, (-len(mine[giver]), giver))
            elif least[0][0] != len(mine[taker]):
                heapq.heapreplace(least, (len(mine[taker]), taker))
            elif len(mine[giver]) - len(mine[taker]) <= 1:
                return
            else:
                spot = min(mine[giver] - mine[taker])
                mine[giver].discard(spot)
                mine[taker].add(spot)
                work += len(mine[giver]) + 1
                if work >= SEEN_PER_STEP:
                    work = 0
                    yield
