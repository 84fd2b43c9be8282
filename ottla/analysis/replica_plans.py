"""Plans new replicas for `partitions drain`, `partitions rebalance` and the console: the plans are pure functions of the current replicas.

A plan has the partitions that change, each with its new replicas; the first replica is the preferred leader. Both plans keep the number of
replicas. `drained` moves only replicas of the drained brokers, and prefers racks with few replicas of the partition. `rebalanced` never
raises the largest number of replicas that a partition has in one rack; it evens the brokers' bytes if the partitions' sizes are known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin, replica_admin
from ottla.client.core.topic_lists import each_partition
from ottla.client.errors import ClientError

Replicas = Mapping[TopicPartition, Sequence[int]]
Plan = dict[TopicPartition, list[int]]
Racks = Mapping[int, str | None]
Sizes = Mapping[TopicPartition, int]
BYTES_TOLERANCE = 0.1
"""`rebalanced` leaves brokers alone whose bytes differ by at most this part of the mean, or by at most `BYTES_MIN`."""
BYTES_MIN = 16 << 20
_Led = dict[int, dict[int, dict[TopicPartition, None]]]
"""Partitions, in order, by their preferred leader and another replica."""


def assigned(cluster: Cluster, topics: Sequence[str]) -> Plan:
    """Returns the replicas of each partition. If a partition is being moved, returns its replicas after the move."""
    now = {
        TopicPartition(topic, found.partition_index): list(found.replica_nodes)
        for topic in topics
        for found in cluster.topic(topic).partitions
    }
    for partition, move in replica_admin.moves_under_way(cluster).items():
        if partition in now:
            now[partition] = [broker for broker in move.replicas if broker not in move.removing]
    return now


def partition_sizes(cluster: Cluster, brokers: Collection[int]) -> tuple[dict[TopicPartition, int], list[int]]:
    """Returns the bytes of each partition's largest replica on the brokers, and the brokers whose sizes cannot be read."""
    sizes: dict[TopicPartition, int] = {}
    unread = []
    for broker in brokers:
        try:
            found = admin.describe_log_dirs(cluster, broker)
        except ClientError:
            unread.append(broker)
            continue
        if any(directory.error_code for directory in found):
            unread.append(broker)
        for directory in found:
            for partition, held in each_partition(directory.topics):
                if not held.is_future_key:
                    sizes[partition] = max(sizes.get(partition, 0), held.partition_size)
    return sizes, unread


def bytes_on(replicas: Replicas, sizes: Sizes) -> Counter[int]:
    """Returns the bytes by broker."""
    held: Counter[int] = Counter()
    for partition, brokers in replicas.items():
        for broker in brokers:
            held[broker] += sizes.get(partition, 0)
    return held


def is_cordoned(cluster: Cluster, broker_id: int) -> bool:
    """Whether all log directories of the broker that work are cordoned, so that it gets no new replicas (KIP-1066)."""
    working = [found for found in admin.describe_log_dirs(cluster, broker_id, []) if not found.error_code]
    return bool(working) and all(found.is_cordoned for found in working)


def drained(now: Replicas, drained_brokers: Collection[int], targets: Collection[int], racks: Racks) -> tuple[Plan, list[TopicPartition]]:
    """Returns a plan without replicas on the drained brokers, and the partitions that have too few other brokers.

    A replica moves to the target whose rack has the fewest replicas of the partition; among equal targets, to the one with the fewest
    replicas. Its position in the list stays the same. Then the preferred leaders of the changed partitions are spread evenly.
    """
    counts = _replica_counts(now)
    plan: Plan = {}
    stuck = []
    for partition, replicas in sorted(now.items()):
        new = list(replicas)
        for position, broker in enumerate(replicas):
            if broker in drained_brokers:
                free = [target for target in targets if target not in new]
                if not free:
                    stuck.append(partition)
                    break
                new[position] = min(free, key=lambda target: (_sharing(new, position, target, racks), counts[target], target))
                counts[new[position]] += 1
        else:
            if new != list(replicas):
                plan[partition] = new
    leaders = Counter(replicas[0] for partition, replicas in now.items() if partition not in plan)
    _spread_leaders(plan, leaders, targets)
    return plan, stuck


def handed_over(now: Replicas, giver: int, live: Collection[int]) -> Plan:
    """Returns a plan in which the giver is no longer the first live replica of partitions with another live one. No replica moves: only
    the order of replicas changes. The new preferred leaders are spread over the other live brokers.
    """
    plan: Plan = {}
    for partition, replicas in sorted(now.items()):
        candidates = [broker for broker in replicas if broker in live]
        if candidates[:1] == [giver] and len(candidates) > 1:
            plan[partition] = new = list(replicas)
            at = new.index(candidates[1])
            new[0], new[at] = new[at], new[0]
    leaders = Counter(replicas[0] for partition, replicas in now.items() if partition not in plan)
    _spread_leaders(plan, leaders, [broker for broker in live if broker != giver])
    return plan


def rebalanced(now: Replicas, brokers: Collection[int], racks: Racks, *, leaders_only: bool = False, sizes: Sizes | None = None) -> Plan:
    """Returns a plan after which the brokers differ by at most one replica and one preferred leader, as far as moves of single replicas and
    changes of their order achieve that. With `sizes`, replicas are then exchanged until the brokers' bytes are within the tolerance.

    Replicas on dead brokers are not moved. With `leaders_only` no replica moves; only the order of replicas changes.
    """
    placed = {partition: list(replicas) for partition, replicas in sorted(now.items())}
    if not leaders_only:
        _spread_replicas(placed, brokers, racks)
        if sizes:
            while _even_bytes(placed, brokers, racks, sizes):
                pass
    _spread_leaders(placed, Counter(), brokers)
    return {partition: replicas for partition, replicas in placed.items() if replicas != list(now[partition])}


def _replica_counts(replicas: Replicas) -> Counter[int]:
    return Counter(broker for each in replicas.values() for broker in each)


def _sharing(replicas: Sequence[int], position: int, target: int, racks: Racks) -> int:
    """Returns how many of the other replicas are in the rack of `target`; 0 without a rack."""
    rack = racks.get(target)
    return sum(1 for at, broker in enumerate(replicas) if at != position and rack is not None and racks.get(broker) == rack)


def _spread_replicas(placed: Plan, brokers: Collection[int], racks: Racks) -> None:
    """Moves one replica after the other from a broker with more to one with at least two fewer, until none can move. It prefers a partition
    of the topic whose numbers of replicas on the two brokers differ most.
    """
    on: dict[int, dict[str, dict[TopicPartition, None]]] = {broker: {} for broker in brokers}
    for partition, replicas in placed.items():
        for broker in replicas:
            if broker in on:
                on[broker].setdefault(partition.topic, {})[partition] = None
    counts = _replica_counts(placed)

    def movable(source: int, target: int) -> TopicPartition | None:
        for topic in sorted(on[source], key=lambda one: len(on[target].get(one, ())) - len(on[source][one])):
            for partition in on[source][topic]:
                if target not in placed[partition] and _may_move(placed[partition], source, target, racks):
                    return partition
        return None

    def move_one() -> bool:
        by_count = sorted(on, key=lambda broker: (counts[broker], broker))
        for source in reversed(by_count):
            for target in by_count:
                if counts[source] - counts[target] < 2:
                    break
                partition = movable(source, target)
                if partition is not None:
                    placed[partition][placed[partition].index(source)] = target
                    del on[source][partition.topic][partition]
                    on[target].setdefault(partition.topic, {})[partition] = None
                    counts.update({source: -1, target: 1})
                    return True
        return False

    while move_one():
        pass


def _may_move(replicas: Sequence[int], source: int, target: int, racks: Racks) -> bool:
    position = replicas.index(source)
    return _sharing(replicas, position, target, racks) <= _sharing(replicas, position, source, racks)


def _even_bytes(placed: Plan, brokers: Collection[int], racks: Racks, sizes: Sizes) -> bool:
    """Exchanges a replica of a broker with more bytes for a smaller one of a broker with fewer. If the first has one replica more, a move
    without a return is also possible. Takes what evens the two brokers best, among equals with the fewest bytes; returns False if nothing
    is left to do.
    """
    held, counts = bytes_on(placed, sizes), _replica_counts(placed)
    tolerance = max(BYTES_TOLERANCE * sum(held[broker] for broker in brokers) / len(brokers), BYTES_MIN) if brokers else 0
    by_bytes = sorted(brokers, key=lambda broker: (held[broker], broker))
    for source in reversed(by_bytes):
        for target in by_bytes:
            gap = held[source] - held[target]
            if gap <= tolerance:
                break
            back: list[tuple[int, TopicPartition | None]] = [(sizes.get(one, 0), one) for one in _movable(placed, target, source, racks)]
            if counts[source] - counts[target] == 1:
                back.append((0, None))
            back.sort(key=lambda found: found[0])
            best: tuple[tuple[int, int], TopicPartition, TopicPartition | None] | None = None
            for partition in _movable(placed, source, target, racks):
                size = sizes.get(partition, 0)
                at = bisect_left(back, size - gap / 2, key=lambda found: found[0])
                for other_size, other in back[max(at - 1, 0) : at + 1]:
                    left, carried = abs(gap - 2 * (size - other_size)), size + other_size
                    if left < gap and (best is None or (left, carried) < best[0]):
                        best = (left, carried), partition, other
            if best is not None:
                _, partition, other = best
                placed[partition][placed[partition].index(source)] = target
                if other is not None:
                    placed[other][placed[other].index(target)] = source
                return True
    return False


def _movable(placed: Plan, source: int, target: int, racks: Racks) -> list[TopicPartition]:
    return [
        partition
        for partition, replicas in placed.items()
        if source in replicas and target not in replicas and _may_move(replicas, source, target, racks)
    ]


def _spread_leaders(placed: Plan, leaders: Counter[int], brokers: Collection[int]) -> None:
    """Changes the order of replicas until no broker is the preferred leader of two partitions more than another broker that could take over
    one of them. `leaders` counts the partitions that keep their preferred leader.

    Leadership moves along a chain: broker 1 gives a partition to 2, and 2 another one to 3.
    """
    led: _Led = {broker: {} for broker in brokers}
    counts = Counter(leaders)
    for partition, replicas in placed.items():
        counts[replicas[0]] += 1
        _index(led, partition, replicas)
    while True:
        chain = next((found for broker in sorted(led, key=lambda one: -counts[one]) if (found := _chain(led, counts, broker))), None)
        if chain is None:
            return
        for giver, taker in zip(chain, chain[1:], strict=False):
            partition = next(iter(led[giver][taker]))
            replicas = placed[partition]
            _index(led, partition, replicas, is_removed=True)
            at = replicas.index(taker)
            replicas[0], replicas[at] = taker, giver
            _index(led, partition, replicas)
        counts[chain[0]] -= 1
        counts[chain[-1]] += 1


def _index(led: _Led, partition: TopicPartition, replicas: Sequence[int], *, is_removed: bool = False) -> None:
    for other in replicas[1:]:
        if replicas[0] in led and other in led:
            partitions = led[replicas[0]].setdefault(other, {})
            if is_removed:
                del partitions[partition]
            else:
                partitions[partition] = None


def _chain(led: _Led, counts: Mapping[int, int], start: int) -> list[int] | None:
    """Returns the shortest chain of brokers from `start` to a broker that leads at least two partitions less; None if there is no such
    chain.
    """
    chains = {start: [start]}
    queue = [start]
    for broker in queue:
        for other, partitions in sorted(led[broker].items()):
            if partitions and other not in chains:
                chains[other] = [*chains[broker], other]
                if counts[start] - counts[other] >= 2:
                    return chains[other]
                queue.append(other)
    return None
