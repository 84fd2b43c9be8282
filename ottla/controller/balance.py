"""Automatic balance: moves leadership back to preferred replicas if a broker leads too few of its partitions.

The preferred replica is the first one of a partition's assignment. Leadership is spread evenly while preferred replicas lead; failures and
restarts change that. The imbalance of a broker is the percentage of the partitions preferring it that it does not lead. Above
`leader.imbalance.per.broker.percentage`, the broker is elected leader of each of these partitions where it is in sync, unless it is about
to stop. Partitions that are being reassigned keep their leader.
"""

from __future__ import annotations

from ottla.controller.leader_election import elect_preferred
from ottla.controller.partition_states import NamedPartition, led, partitions_plan
from ottla.controller.plans import Plan
from ottla.controller.reassignment import is_moving
from ottla.controller.state import ClusterState
from ottla.controller.topic_rules import TopicRules


def decide_balance(state: ClusterState, imbalance_percentage: int, rules: TopicRules) -> Plan:
    """Elects preferred leaders for brokers above `imbalance_percentage`. The answer is the number of partitions that get another leader."""
    preferring: dict[int, int] = {}
    elsewhere: dict[int, list[NamedPartition]] = {}
    for topic, partition in state.partitions():
        preferred = partition.replicas[0]
        preferring[preferred] = preferring.get(preferred, 0) + 1
        if partition.leader != preferred:
            elsewhere.setdefault(preferred, []).append((topic.name, partition))
    standing = state.standing()
    new: list[NamedPartition] = []
    for broker_id, away in elsewhere.items():
        if 100 * len(away) <= imbalance_percentage * preferring[broker_id]:
            continue
        for name, partition in away:
            named = state.topic(name)
            assert named is not None, f"{name} has partitions"
            elected = None if is_moving(partition) else elect_preferred(partition, state.standing_for(standing, named, partition))
            if elected is not None:
                new.append((name, led(state, partition, elected, rules.in_sync_min(named))))
    return partitions_plan(state, new, answer=len(new))
