"""Plans new replicas for `partitions drain`, `partitions rebalance` and the console: the plans are pure functions of the current replicas.

A plan has the partitions that change, each with its new replicas; the first replica is the preferred leader. Both plans keep the number of
replicas. `drained` moves only replicas of the drained brokers, and prefers racks with few replicas of the partition. `rebalanced` never
raises the largest number of replicas that a partition has in one rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin, replica_admin

Replicas = Mapping[TopicPartition, Sequence[int]]
Plan = dict[TopicPartition, list[int]]
Racks = Mapping[int, str | None]
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


def rebalanced(now: Replicas, brokers: Collection[int], racks: Racks, *, leaders_only: bool = False) -> Plan:
    """Returns a plan after which the brokers differ by at most one replica and one preferred leader, as far as moves of single replicas and
    changes of their order achieve that.

    Replicas on dead brokers are not moved. With `leaders_only` no replica moves; only the order of replicas changes.
    """
    placed = {partition: list(replicas) for partition, replicas in sorted(now.items())}
    if not leaders_only:
        _spread_replicas(placed, brokers, racks)
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
