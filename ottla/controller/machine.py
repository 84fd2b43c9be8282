"""What the controller decides when brokers come and go, when a leader reports its in-sync set, and when an election is requested.

Each `decide_*` is pure: it reads `ClusterState` and answers a `Plan`, the operations of one multi and the changes to apply once the store
has taken it. Every plan that writes begins with a check of `/controller_epoch`, and sets each partition state under the version last
read, so a controller that was replaced writes nothing (I9, I38, I39). Leader epochs rise with each change of leader and with each restart
of a leader (I15).

Topics are decided in `topics.py`, configurations in `configs.py`, moves of replicas in `reassignment.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ottla.base.cluster_metadata import (
    NO_LEADER,
    BrokerMetadata,
    BrokerPut,
    BrokerRemoved,
    Change,
    PartitionMetadata,
    PartitionPut,
    TopicMetadata,
    TopicPut,
)
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import Operation, Set
from ottla.controller import election, znodes
from ottla.controller.api import ElectionType, IsrChangeRequest, PartitionResult, Reassignment
from ottla.controller.plans import Plan, Unit, planned
from ottla.controller.reassignment import begun, check_target, finished, is_moving, origin_of
from ottla.controller.state import ClusterState

MayElectUncleanly = Callable[[TopicMetadata], bool]


def moved(state: ClusterState, partition: PartitionMetadata, leader: int, isr: Sequence[int]) -> PartitionMetadata:
    """The next state of a partition under a new leader epoch."""
    return replace(
        partition,
        leader=leader,
        isr=tuple(isr),
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        controller_epoch=state.controller_epoch,
    )


def state_write(topic: str, new: PartitionMetadata) -> Operation:
    """The conditional write of a state whose `partition_epoch` is already the next one."""
    return Set(znodes.state_path(topic, new.index), znodes.partition_bytes(new), new.partition_epoch - 1)


def partitions_plan(
    state: ClusterState, new: Sequence[tuple[str, PartitionMetadata]], extra: Sequence[Change] = (), answer: Any = None
) -> Plan:
    """The new states of several partitions, and the assignments of the topics in which replicas changed: those go with their partitions."""
    by_topic: dict[str, dict[int, PartitionMetadata]] = {}
    for name, partition in new:
        by_topic.setdefault(name, {})[partition.index] = partition
    units: list[Unit] = []
    for name, changed_partitions in by_topic.items():
        of_partitions = [Unit([state_write(name, new)], [PartitionPut(name, new)]) for new in changed_partitions.values()]
        of_topic = _assignment_unit(state, name, changed_partitions)
        units += of_partitions if of_topic is None else [_joined(of_partitions, of_topic)]
    return planned(state, units, at_once=extra, answer=answer)


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


def decide_brokers_changed(
    state: ClusterState,
    joined: Sequence[BrokerMetadata],
    left: Sequence[int],
    may_elect_uncleanly: MayElectUncleanly,
) -> Plan:
    """Brokers registered (anew) or went away. A broker that restarted leads nothing until it is elected again, under a new epoch."""
    changes: list[Change] = [BrokerRemoved(broker_id) for broker_id in left]
    changes += [BrokerPut(broker) for broker in joined]
    live = {broker_id: None for broker_id in state.brokers if broker_id not in left} | {broker.broker_id: None for broker in joined}
    restarted = {broker.broker_id for broker in joined}
    new: list[tuple[str, PartitionMetadata]] = []
    for topic, partition in state.partitions():
        changed = _after_membership(state, topic, partition, live, restarted, may_elect_uncleanly)
        if changed is not None:
            new.append((topic.name, changed))
    return partitions_plan(state, new, changes)


def _after_membership(
    state: ClusterState,
    topic: TopicMetadata,
    partition: PartitionMetadata,
    live: Collection[int],
    restarted: Collection[int],
    may_elect_uncleanly: MayElectUncleanly,
) -> PartitionMetadata | None:
    if partition.leader in live and partition.leader not in restarted:
        isr = election.live_members(partition.isr, live)
        if isr == partition.isr:
            return None
        return moved(state, partition, partition.leader, isr)
    elected = election.elect_after_failure(partition.replicas, partition.isr, live, is_unclean_allowed=may_elect_uncleanly(topic))
    if elected is not None:
        return moved(state, partition, elected.leader, elected.isr)
    if partition.leader == NO_LEADER:
        return None
    return moved(state, partition, NO_LEADER, partition.isr)


def decide_controlled_shutdown(state: ClusterState, leaving: int, broker_epoch: int) -> Plan:
    """Hands the partitions of a stopping broker to others; the answer is (error, the partitions that only it can lead)."""
    registered = state.brokers.get(leaving)
    if registered is None or broker_epoch not in (-1, registered.epoch):
        return Plan(answer=(ErrorCode.STALE_BROKER_EPOCH, []))
    live = [broker_id for broker_id in state.brokers if broker_id != leaving]
    new, remaining = [], []
    for topic, partition in state.partitions():
        if partition.leader == leaving:
            elected = election.elect_for_shutdown(partition.replicas, partition.isr, live, leaving)
            if elected is None:
                remaining.append((topic.name, partition.index))
            else:
                new.append((topic.name, moved(state, partition, elected.leader, elected.isr)))
        elif leaving in partition.isr and len(partition.isr) > 1:
            isr = tuple(member for member in partition.isr if member != leaving)
            new.append((topic.name, moved(state, partition, partition.leader, isr)))
    return partitions_plan(state, new, answer=(ErrorCode.NONE, remaining))


def decide_elect_leaders(state: ClusterState, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None) -> Plan:
    """Elections on request; without a list, of all partitions that need one."""
    wanted = partitions if partitions is not None else [(topic.name, partition.index) for topic, partition in state.partitions()]
    new, results = [], []
    for name, index in dict.fromkeys(wanted):
        partition = state.partition(name, index)
        if partition is None:
            message = f"No such partition as {name}-{index}"
            results.append(PartitionResult(topic=name, partition=index, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=message))
            continue
        elected, error = _elect_on_request(state, kind, partition)
        if elected is not None:
            new.append((name, moved(state, partition, elected.leader, elected.isr)))
        elif error is ErrorCode.ELECTION_NOT_NEEDED and partitions is None:
            continue
        results.append(PartitionResult(topic=name, partition=index, error=error, message=ELECTION_MESSAGES.get(error)))
    return partitions_plan(state, new, answer=results)


ELECTION_MESSAGES = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def _elect_on_request(state: ClusterState, kind: ElectionType, partition: PartitionMetadata) -> tuple[election.Elected | None, ErrorCode]:
    replicas, isr, live = partition.replicas, partition.isr, state.brokers
    if kind is ElectionType.PREFERRED:
        if partition.leader == replicas[0]:
            return None, ErrorCode.ELECTION_NOT_NEEDED
        elected, refusal = election.elect_preferred(replicas, isr, live), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        if partition.leader != NO_LEADER:
            return None, ErrorCode.ELECTION_NOT_NEEDED
        elected = election.elect_after_failure(replicas, isr, live, is_unclean_allowed=True)
        refusal = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return elected, ErrorCode.NONE if elected is not None else refusal


def decide_alter_partition(state: ClusterState, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest]) -> Plan:
    """A leader's new in-sync sets (KIP-497, KIP-903). The answer is (error of the whole request, results)."""
    broker = state.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return Plan(answer=(ErrorCode.STALE_BROKER_EPOCH, []))
    new: list[tuple[str, PartitionMetadata]] = []
    results = []
    for change in changes:
        topic = state.topic_by_id(change.topic_id)
        if topic is None or not 0 <= change.partition < len(topic.partitions):
            error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(PartitionResult(topic="", topic_id=change.topic_id, partition=change.partition, error=error))
            continue
        partition = topic.partitions[change.partition]
        is_repeated = any(name == topic.name and other.index == partition.index for name, other in new)
        error = ErrorCode.INVALID_REQUEST if is_repeated else _isr_refusal(state, broker_id, partition, change)
        if error is ErrorCode.NONE:
            changed = _with_isr(state, partition, [member for member, _ in change.isr])
            if changed is not partition:
                new.append((topic.name, changed))
            partition = changed
        results.append(partition_result(topic, partition, error))
    return partitions_plan(state, new, answer=(ErrorCode.NONE, results))


def _isr_refusal(state: ClusterState, broker_id: int, partition: PartitionMetadata, change: IsrChangeRequest) -> ErrorCode:
    members = [member for member, _ in change.isr]
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # The leader knows more than we do: we are no longer the controller.
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if partition.leader not in members or not partition.replicas or any(member not in partition.replicas for member in members):
        return ErrorCode.INVALID_REQUEST
    if len(dict.fromkeys(members)) != len(members):
        return ErrorCode.INVALID_REQUEST
    for member, epoch in change.isr:
        registered = state.brokers.get(member)
        # A member that restarted since its last fetch may have come back empty (KIP-903, I13).
        if registered is None or epoch not in (-1, registered.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _with_isr(state: ClusterState, partition: PartitionMetadata, isr: Sequence[int]) -> PartitionMetadata:
    """The state with this in-sync set: the same leader epoch, because the leader stays; a move of replicas that is now complete ends."""
    if tuple(isr) == partition.isr:
        return partition
    changed = replace(partition, isr=tuple(isr), partition_epoch=partition.partition_epoch + 1, controller_epoch=state.controller_epoch)
    return finished(changed, state.brokers)


def partition_result(topic: TopicMetadata, partition: PartitionMetadata, error: ErrorCode = ErrorCode.NONE) -> PartitionResult:
    return PartitionResult(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=partition.index,
        error=error,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
    )


def decide_reassign(state: ClusterState, requests: Sequence[Reassignment]) -> Plan:
    """Begins, changes or cancels moves of replicas."""
    new: dict[tuple[str, int], PartitionMetadata] = {}
    results = []
    for request in requests:
        key = (request.topic, request.partition)
        try:
            if key in new:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
            changed = _reassigned(state, request)
        except ApiError as refusal:
            results.append(PartitionResult(topic=key[0], partition=key[1], error=refusal.code, message=refusal.message))
            continue
        if changed is not None:
            new[key] = changed
        results.append(PartitionResult(topic=key[0], partition=key[1]))
    return partitions_plan(state, [(name, partition) for (name, _), partition in new.items()], answer=results)


def _reassigned(state: ClusterState, request: Reassignment) -> PartitionMetadata | None:
    """The partition's next state, or None if it is as wanted already."""
    partition = state.partition(request.topic, request.partition)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    target = request.replicas
    if target is None:
        if not is_moving(partition):
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        target = origin_of(partition)
    check_target(target, state.brokers)
    if not is_moving(partition) and tuple(target) == partition.replicas:
        return None
    return replace(begun(partition, target, state.brokers), controller_epoch=state.controller_epoch)
