"""How members of a classic group share partitions: range, round-robin and cooperative-sticky, as pure functions.

Each function gets the subscriptions of all members and the topics' partition counts, and returns every member's partitions. Range and
round-robin return the same assignment as Kafka's assignors for members without racks. Cooperative-sticky keeps a member's partitions as far
as balance allows. `withhold_moving` then removes the partitions that still have another owner, so that they move in a second rebalance
(KIP-429).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition

RANGE = "range"
ROUND_ROBIN = "roundrobin"
COOPERATIVE_STICKY = "cooperative-sticky"

Assignment = dict[str, list[TopicPartition]]


class Subscription(NamedTuple):
    """A member's topics and, for sticky assignors, the partitions that it owns."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None


def assign(name: str, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    """Assigns with the assignor of this name; any other name than range and round-robin means cooperative-sticky. A topic that does not
    exist has no partitions to assign.
    """
    if name == RANGE:
        return assign_range(members, partition_counts)
    if name == ROUND_ROBIN:
        return assign_round_robin(members, partition_counts)
    return withhold_moving(assign_sticky(members, partition_counts), members)


def _in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Returns the members in Kafka's order: static members by instance id, then the others by member id."""
    return sorted(members, key=lambda member: (members[member].instance_id is None, members[member].instance_id or member))


def assign_range(members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    """Divides the partitions of each topic into contiguous ranges, one for each subscribed member. The first members may get one partition
    more."""
    found: Assignment = {member: [] for member in members}
    for topic in sorted({topic for member in members.values() for topic in member.topics}):
        subscribers = [member for member in _in_order(members) if topic in members[member].topics]
        share, extra = divmod(partition_counts.get(topic, 0), len(subscribers))
        start = 0
        for position, member in enumerate(subscribers):
            count = share + (position < extra)
            found[member] += [TopicPartition(topic, number) for number in range(start, start + count)]
            start += count
    return found


def assign_round_robin(members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    """Assigns all partitions, in order of topic and number, to the members in turn. Skips members that are not subscribed to the topic."""
    found: Assignment = {member: [] for member in members}
    order = _in_order(members)
    turn = 0
    for topic in sorted({topic for member in members.values() for topic in member.topics}):
        for number in range(partition_counts.get(topic, 0)):
            while topic not in members[order[turn % len(order)]].topics:
                turn += 1
            found[order[turn % len(order)]].append(TopicPartition(topic, number))
            turn += 1
    return found


def assign_sticky(members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    """Gives each owner its partitions. Each partition without an owner is given to the subscribed member with the fewest partitions. Then
    moves partitions while a move makes the counts more equal.
    """
    found: Assignment = {member: [] for member in members}
    owners = _owners(members, partition_counts)
    partitions = [TopicPartition(topic, number) for topic in sorted(partition_counts) for number in range(partition_counts[topic])]
    rest = []
    for partition in partitions:
        owner = owners.get(partition)
        if owner is None:
            rest.append(partition)
        else:
            found[owner].append(partition)
    for partition in rest:
        subscribers = [member for member in _in_order(members) if partition.topic in members[member].topics]
        if subscribers:
            found[min(subscribers, key=lambda member: len(found[member]))].append(partition)
    _even_out(found, members)
    return {member: sorted(partitions) for member, partitions in found.items()}


def _owners(members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Returns the owner of each owned partition. If several members claim a partition, the member of the newest generation is its owner."""
    owners: dict[TopicPartition, str] = {}
    for member in sorted(members, key=lambda name: (members[name].generation, name)):
        subscription = members[member]
        for partition in subscription.owned:
            if partition.topic in subscription.topics and partition.partition < partition_counts.get(partition.topic, 0):
                owners[partition] = member
    return owners


def _even_out(found: Assignment, members: Mapping[str, Subscription]) -> None:
    """Moves partitions from a member to another member that has at least two fewer, until no such move is possible. The loop ends because
    each move reduces a difference.
    """
    order = _in_order(members)
    moved = True
    while moved:
        moved = False
        for receiver in sorted(order, key=lambda member: len(found[member])):
            for giver in sorted(order, key=lambda member: -len(found[member])):
                if len(found[giver]) - len(found[receiver]) < 2:
                    break
                movable = [partition for partition in found[giver] if partition.topic in members[receiver].topics]
                if movable:
                    found[giver].remove(movable[-1])
                    found[receiver].append(movable[-1])
                    moved = True
                    break


def withhold_moving(assignment: Assignment, members: Mapping[str, Subscription]) -> Assignment:
    """Removes partitions that another member of the newest generation still owns. The next rebalance assigns them after their owner has
    given them up.
    """
    newest = max((member.generation for member in members.values()), default=-1)
    owned = {partition: name for name, member in members.items() if member.generation == newest for partition in member.owned}
    return {
        member: [partition for partition in partitions if owned.get(partition, member) == member]
        for member, partitions in assignment.items()
    }
