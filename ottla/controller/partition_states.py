"""Computes the next states of partitions, and the plan that writes them.

Each write of a state is conditional on the version that was last read, so a controller with outdated state writes nothing (I9 in
docs/invariants.md). A new leader, or the same leader after a restart, gets a new leader epoch (I15). A change of only the in-sync set keeps
the epoch (KAFKA-15021), because it does not concern followers and clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ottla.base.cluster_metadata import NO_LEADER, Change, PartitionMetadata, PartitionPut, TopicPut
from ottla.base.ports import Operation, Set
from ottla.controller.leader_election import (
    ANY_SIZE,
    UNCHANGED,
    Choice,
    Elected,
    Standing,
    eligible_after,
    emptied_after,
    in_sync_min_while_eligible,
    in_sync_without_leader,
    last_known_after,
)
from ottla.controller.plans import Plan, Unit, planned
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes

NamedPartition = tuple[str, PartitionMetadata]
"""A partition with the name of its topic."""

LOSS_ACCEPTED = frozenset({Choice.UNCLEAN, Choice.EMPTY})
"""After an election of these kinds, a replica may truncate records below its high watermark that the new leader lacks."""

ELECTIONS_NOTED_MAX = 100
"""Maximum number of elections that one decision logs with a line each. One more line counts the rest."""


def led(
    state: ClusterState, partition: PartitionMetadata, elected: Elected, in_sync_min: int, standing: Standing = UNCHANGED
) -> PartitionMetadata:
    """Returns the state under the elected leader, with a new leader epoch. A leader that restarted may fail to open its log. So the other
    replicas that hold every acknowledged record remain eligible, and can be elected, until the leader sends AlterPartition."""
    in_sync_min = ANY_SIZE if elected.leader in standing.restarted else in_sync_min_while_eligible(partition, in_sync_min)
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    if elected.is_lossless:
        eligible = eligible_after(partition, elected.isr, in_sync_min, standing.lost)
        last_known = last_known_after(partition, elected.isr, eligible, in_sync_min, standing)
    return replace(
        partition,
        leader=elected.leader,
        isr=elected.isr,
        eligible=eligible,
        last_leader=NO_LEADER,
        last_known=last_known,
        emptied=(),
        loss_epoch=partition.leader_epoch + 1 if elected.choice in LOSS_ACCEPTED else partition.loss_epoch,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        controller_epoch=state.controller_epoch,
    )


def leaderless(state: ClusterState, partition: PartitionMetadata, standing: Standing, in_sync_min: int) -> PartitionMetadata | None:
    """Returns the state of a partition that no broker can lead. Returns None if nothing changes."""
    isr = in_sync_without_leader(partition, standing)
    eligible = eligible_after(partition, isr, in_sync_min_while_eligible(partition, in_sync_min), standing.lost)
    last_known = last_known_after(partition, isr, eligible, ANY_SIZE, standing)
    new = replace(partition, isr=isr, eligible=eligible, last_known=last_known, emptied=emptied_after(partition, standing))
    if partition.leader != NO_LEADER:
        new = replace(new, leader=NO_LEADER, last_leader=partition.leader, leader_epoch=partition.leader_epoch + 1)
    return None if new == partition else _renewed(state, new)


def with_isr(
    state: ClusterState, partition: PartitionMetadata, isr: Sequence[int], in_sync_min: int, standing: Standing = UNCHANGED
) -> PartitionMetadata | None:
    """Returns the state with this in-sync set and the same leader, or still without a leader. Returns None if nothing changes."""
    eligible = eligible_after(partition, isr, in_sync_min, standing.lost)
    last_known = last_known_after(partition, isr, eligible, ANY_SIZE if partition.leader == NO_LEADER else in_sync_min, standing)
    new = replace(partition, isr=tuple(isr), eligible=eligible, last_known=last_known)
    return None if new == partition else _renewed(state, new)


def _renewed(state: ClusterState, partition: PartitionMetadata) -> PartitionMetadata:
    """Returns the state with the next partition epoch and this controller's epoch."""
    return replace(partition, partition_epoch=partition.partition_epoch + 1, controller_epoch=state.controller_epoch)


class Elections:
    """The log lines of one decision: elections that may lose records, and partitions that wait for a leader instead."""

    def __init__(self) -> None:
        self.count = 0
        self._notes: list[str] = []

    def note(self, topic: str, old: PartitionMetadata, elected: Elected) -> None:
        if elected.is_lossless or len(old.replicas) == 1:  # With a single replica there is no choice.
            return
        kind = "unclean election" if elected.choice is Choice.UNCLEAN else "election"
        held = sorted(dict.fromkeys((*old.isr, *old.eligible, *old.last_known, *old.emptied)))
        self._add(
            f"{kind}: {topic}-{old.index} is led by broker {elected.leader} from leader epoch {old.leader_epoch + 1}, which was "
            f"{elected.choice.value}; acknowledged records that only brokers {held} held may be lost"
        )

    def note_short(self, topic: str, old: PartitionMetadata, follower: int) -> None:
        """Adds a log line: `follower` has reported that the partition's leader lacks records."""
        self._add(
            f"{topic}-{old.index}: broker {old.leader}, the leader of epoch {old.leader_epoch}, lacks records below the high watermark of "
            f"broker {follower}; another replica that is in sync or eligible leads, if there is one"
        )

    def note_waiting(self, topic: str, old: PartitionMetadata, new: PartitionMetadata | None) -> None:
        """Adds a log line about a partition without a leader, if its last members in sync have lost records."""
        if new is not None and old.isr and not new.isr:
            self._add(
                f"no election: {topic}-{old.index} has no leader, because brokers {list(old.isr)}, the last in sync, lack records that "
                f"they had; an unclean election lets another replica lead"
            )

    def _add(self, line: str) -> None:
        self.count += 1
        if len(self._notes) < ELECTIONS_NOTED_MAX:
            self._notes.append(line)

    @property
    def notes(self) -> tuple[str, ...]:
        more = self.count - len(self._notes)
        return (*self._notes, f"{more} more elections of this kind") if more else tuple(self._notes)


def state_write(topic: str, new: PartitionMetadata) -> Operation:
    """Returns the conditional write of a state with its next `partition_epoch`."""
    return Set(znodes.state_path(topic, new.index), znodes.partition_bytes(new), new.partition_epoch - 1)


def partitions_plan(
    state: ClusterState,
    new: Sequence[NamedPartition],
    *,
    at_once: Sequence[Change] = (),
    last: Sequence[Unit] = (),
    answer: Any = None,
    notes: Sequence[str] = (),
) -> Plan:
    """Returns a plan that writes the new states, with the assignments of topics that have changed replicas. An assignment is written in one
    multi with the states of its partitions. `last` is written after all of them."""
    by_topic: dict[str, dict[int, PartitionMetadata]] = {}
    for name, partition in new:
        by_topic.setdefault(name, {})[partition.index] = partition
    units: list[Unit] = []
    for name, changed_partitions in by_topic.items():
        of_partitions = [Unit([state_write(name, new)], [PartitionPut(name, new)]) for new in changed_partitions.values()]
        of_topic = _assignment_unit(state, name, changed_partitions)
        units += of_partitions if of_topic is None else [_joined(of_partitions, of_topic)]
    return planned(state, [*units, *last], at_once=at_once, answer=answer, notes=notes)


def _assignment_unit(state: ClusterState, name: str, changed_partitions: Mapping[int, PartitionMetadata]) -> Unit | None:
    topic = state.topic(name)
    assert topic is not None, f"{name} is not a topic"
    partitions = {partition.index: partition for partition in topic.partitions} | dict(changed_partitions)
    if all(_assignment(partitions[old.index]) == _assignment(old) for old in topic.partitions):
        return None
    changed = replace(topic, partitions=tuple(partitions[index] for index in sorted(partitions)), version=topic.version + 1)
    return Unit([Set(znodes.topic_path(name), znodes.topic_bytes(changed), topic.version)], [TopicPut(changed)])


def _joined(units: Sequence[Unit], last: Unit) -> Unit:
    every = [*units, last]
    return Unit([operation for unit in every for operation in unit.operations], [change for unit in every for change in unit.changes])


def _assignment(partition: PartitionMetadata) -> tuple[tuple[int, ...], ...]:
    """Returns the part of a partition's state that is in its topic's node."""
    return partition.replicas, partition.adding_replicas, partition.removing_replicas
