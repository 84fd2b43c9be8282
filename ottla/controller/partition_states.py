"""The next states of partitions, and the plan that writes them.

Each state is written under the version last read, so that a controller whose view is old writes nothing (I9). A new leader, or the same
one after a restart, gets a new leader epoch (I15); an in-sync set that only changes keeps it (KAFKA-15021): followers and clients of a
leader that stays need not learn anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ottla.base.cluster_metadata import NO_LEADER, Change, PartitionMetadata, PartitionPut, TopicPut
from ottla.base.ports import Operation, Set
from ottla.controller import znodes
from ottla.controller.election import Choice, Elected, Standing, eligible_after, in_sync_without_leader
from ottla.controller.plans import Plan, Unit, planned
from ottla.controller.state import ClusterState

NamedPartition = tuple[str, PartitionMetadata]
"""A partition with the name of its topic."""

ELECTIONS_NOTED_MAX = 100
"""So many elections that may lose records are logged one by one in one decision."""


def led(
    state: ClusterState, partition: PartitionMetadata, elected: Elected, in_sync_min: int, lost: Collection[int] = ()
) -> PartitionMetadata:
    """The state under a new leader, and a new leader epoch."""
    eligible = eligible_after(partition, elected.isr, in_sync_min, lost) if elected.is_lossless else ()
    return replace(
        partition,
        leader=elected.leader,
        isr=elected.isr,
        eligible=eligible,
        last_leader=NO_LEADER,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        controller_epoch=state.controller_epoch,
    )


def leaderless(state: ClusterState, partition: PartitionMetadata, standing: Standing, in_sync_min: int) -> PartitionMetadata | None:
    """The state of a partition that no broker can lead; None if it is in it already."""
    isr = in_sync_without_leader(partition, standing)
    eligible = eligible_after(partition, isr, in_sync_min, standing.lost)
    if partition.leader == NO_LEADER:
        return _with(state, partition, isr, eligible)
    return replace(
        partition,
        leader=NO_LEADER,
        isr=isr,
        eligible=eligible,
        last_leader=partition.leader,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        controller_epoch=state.controller_epoch,
    )


def with_isr(
    state: ClusterState, partition: PartitionMetadata, isr: Sequence[int], in_sync_min: int, lost: Collection[int] = ()
) -> PartitionMetadata | None:
    """The state with this in-sync set under the same leader; None if it has it already."""
    return _with(state, partition, tuple(isr), eligible_after(partition, isr, in_sync_min, lost))


def _with(
    state: ClusterState, partition: PartitionMetadata, isr: tuple[int, ...], eligible: tuple[int, ...]
) -> PartitionMetadata | None:
    if (isr, eligible) == (partition.isr, partition.eligible):
        return None
    return replace(
        partition,
        isr=isr,
        eligible=eligible,
        partition_epoch=partition.partition_epoch + 1,
        controller_epoch=state.controller_epoch,
    )


class Elections:
    """The elections of one decision that may lose records, as lines for the log."""

    def __init__(self) -> None:
        self.count = 0
        self._notes: list[str] = []

    def note(self, topic: str, old: PartitionMetadata, elected: Elected) -> None:
        if elected.is_lossless or len(old.replicas) == 1:  # nothing was chosen where there is one replica
            return
        self.count += 1
        if len(self._notes) == ELECTIONS_NOTED_MAX:
            return
        kind = "unclean election" if elected.choice is Choice.UNCLEAN else "election"
        held = sorted(dict.fromkeys((*old.isr, *old.eligible)))
        self._notes.append(
            f"{kind}: {topic}-{old.index} is led by broker {elected.leader} from leader epoch {old.leader_epoch + 1}, which was "
            f"{elected.choice.value}; acknowledged records that only brokers {held} held may be lost"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        more = self.count - len(self._notes)
        return (*self._notes, f"{more} more elections of this kind") if more else tuple(self._notes)


def state_write(topic: str, new: PartitionMetadata) -> Operation:
    """The conditional write of a state whose `partition_epoch` is already the next one."""
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
    """The new states of several partitions, and the assignments of the topics in which replicas changed: those go with their partitions.
    `last` is written after all of them."""
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
    """The part of a partition's state that stands in its topic's node."""
    return partition.replicas, partition.adding_replicas, partition.removing_replicas
