"""Decides about in-sync sets that leaders propose, and about requested elections and moves of replicas.

Each `decide_*` is pure: it reads `ClusterState` and returns a `Plan`, the writes in one or more multis and the changes to apply after each.
Every multi begins with a check of `/controller_epoch`, and sets each partition state under the version last read, so a controller that was
replaced writes nothing (I9, I38, I39).

`membership.py` decides about brokers that start and end, `topics.py` about topics, `configs.py` about configurations; `reassignment.py` has
the steps of a move, `partition_states.py` the next states of a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ottla.base.cluster_metadata import NO_LEADER, PartitionMetadata, ReplicasFailed, TopicMetadata
from ottla.base.errors import ApiError, ErrorCode, shortened
from ottla.controller import leader_election
from ottla.controller.api import ElectionType, IsrChangeRequest, PartitionResult, Reassignment
from ottla.controller.partition_states import Elections, NamedPartition, led, partitions_plan, with_isr
from ottla.controller.plans import Plan, Unit
from ottla.controller.reassignment import begun, check_target, finished, is_moving, origin_of
from ottla.controller.state import ClusterState
from ottla.controller.topic_rules import TopicRules


def decide_elect_leaders(
    state: ClusterState,
    kind: ElectionType,
    partitions: Sequence[tuple[str, int]] | None,
    rules: TopicRules,
    own_failed: Collection[tuple[bytes, int]] = (),
) -> Plan:
    """Decides requested elections. Without a list, elects leaders of all partitions that need one. `own_failed` is only used without
    a cluster: the replicas of the only broker whose logs have failed. The broker does not report them, and still is their leader."""
    wanted = partitions if partitions is not None else [(topic.name, partition.index) for topic, partition in state.partitions()]
    new: list[NamedPartition] = []
    results = []
    elections = Elections()
    failed = dict(state.failed)
    for name, index in dict.fromkeys(wanted):
        topic, partition = state.topic(name), state.partition(name, index)
        if topic is None or partition is None:
            message = shortened(f"No such topic as {name}" if topic is None else f"No such partition as {name}-{index}")
            results.append(PartitionResult(topic=name, partition=index, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=message))
            continue
        standing = state.standing_for(state.standing(), topic, partition)
        if (topic.topic_id, index) in own_failed:
            standing = standing.without([state.controller_id])
        elected, error = _elect_on_request(kind, partition, standing, state.standing())
        if elected is not None:
            new.append((name, led(state, partition, elected, rules.in_sync_min(topic))))
            if elected.leader in failed:  # The new leader gives up the damaged records, or reports again that its log has failed.
                failed[elected.leader] -= {(topic.topic_id, index)}
            elections.note(name, partition, elected)
        elif error is ErrorCode.ELECTION_NOT_NEEDED and partitions is None:
            continue
        results.append(PartitionResult(topic=name, partition=index, error=error, message=ELECTION_MESSAGES.get(error)))
    changed = [ReplicasFailed(broker_id, replicas) for broker_id, replicas in failed.items() if state.failed[broker_id] != replicas]
    return partitions_plan(state, new, last=[Unit([], changed)] if changed else [], answer=results, notes=elections.notes)


ELECTION_MESSAGES = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def _elect_on_request(
    kind: ElectionType, partition: PartitionMetadata, standing: leader_election.Standing, brokers: leader_election.Standing
) -> tuple[leader_election.Elected | None, ErrorCode]:
    """Returns an elected leader, or None and the reason. `brokers` is `standing` without regard to failed logs."""
    if kind is ElectionType.PREFERRED:
        if partition.leader == partition.replicas[0]:
            return None, ErrorCode.ELECTION_NOT_NEEDED
        elected, refusal = leader_election.elect_preferred(partition, standing), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        is_damaged = partition.leader in brokers.live and partition.leader not in standing.live  # A single broker still leads it.
        if partition.leader != NO_LEADER and not is_damaged:
            return None, ErrorCode.ELECTION_NOT_NEEDED
        elected = leader_election.elect_after_failure(partition, standing, is_unclean_allowed=True)
        if elected is None and partition.partition_epoch >= 0:
            elected = leader_election.elect_damaged(partition, brokers)
        refusal = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return elected, ErrorCode.NONE if elected is not None else refusal


def decide_alter_partition(
    state: ClusterState, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], rules: TopicRules
) -> Plan:
    """Decides new in-sync sets that a leader proposes (KIP-497, KIP-903). The answer is (error of the whole request, results)."""
    broker = state.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return Plan(answer=(ErrorCode.STALE_BROKER_EPOCH, []))
    new: list[NamedPartition] = []
    results = []
    for change in changes:
        topic = state.topic_by_id(change.topic_id)
        if topic is None or not 0 <= change.partition < len(topic.partitions):
            error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(PartitionResult(topic="", topic_id=change.topic_id, partition=change.partition, error=error))
            continue
        partition = topic.partitions[change.partition]
        is_repeated = any(name == topic.name and other.index == partition.index for name, other in new)
        error = ErrorCode.INVALID_REQUEST if is_repeated else _isr_refusal(state, broker_id, topic, partition, change)
        if error is ErrorCode.NONE:
            changed = _with_isr(state, partition, [member for member, _ in change.isr], rules.in_sync_min(topic))
            if changed is not partition:
                new.append((topic.name, changed))
            partition = changed
        results.append(partition_result(topic, partition, error))
    return partitions_plan(state, new, answer=(ErrorCode.NONE, results))


def _isr_refusal(
    state: ClusterState, broker_id: int, topic: TopicMetadata, partition: PartitionMetadata, change: IsrChangeRequest
) -> ErrorCode:
    members = [member for member, _ in change.isr]
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # The leader has newer state, so this broker is no longer the controller.
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
    failed = state.standing_for(state.standing(), topic, partition).lost
    for member, epoch in change.isr:
        if member in failed and member not in partition.isr:
            return ErrorCode.INELIGIBLE_REPLICA
        if not _may_be_in_sync(state, member, epoch, is_joining=member not in partition.isr):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _may_be_in_sync(state: ClusterState, member: int, epoch: int, *, is_joining: bool) -> bool:
    """Whether a member may join the in-sync set or stay in it. A member that restarted since its last fetch may have lost records (KIP-903,
    I13), so a joining member needs its current broker epoch. A broker that is about to stop cannot join."""
    registered = state.brokers.get(member)
    if registered is None:
        return False
    if is_joining:
        return epoch == registered.epoch and member not in state.leaving
    return epoch in (UNKNOWN_EPOCH, registered.epoch)


UNKNOWN_EPOCH = -1
"""The broker epoch of members in requests below version 3, and of members that have not fetched from this leader yet."""


def _with_isr(state: ClusterState, partition: PartitionMetadata, isr: Sequence[int], in_sync_min: int) -> PartitionMetadata:
    """Returns the state with this in-sync set. Ends a reassignment that is now complete. If none ends, the leader and its epoch are
    unchanged."""
    changed = with_isr(state, partition, isr, in_sync_min)
    if changed is None:
        return partition
    return finished(changed, state.standing(), in_sync_min)


def decide_last_known(state: ClusterState, rules: TopicRules) -> Plan:
    """Clears `last_known` of partitions that have enough replicas in sync, for example because `min.insync.replicas` was lowered. Skips
    partitions with eligible replicas: the leader first removes the eligible replicas by AlterPartition, when its log is open."""
    new: list[NamedPartition] = []
    for topic, partition in state.partitions():
        if partition.last_known and not partition.eligible:
            changed = with_isr(state, partition, partition.isr, rules.in_sync_min(topic))
            if changed is not None:
                new.append((topic.name, changed))
    return partitions_plan(state, new)


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
        eligible=partition.eligible,
    )


def decide_reassign(state: ClusterState, requests: Sequence[Reassignment], rules: TopicRules) -> Plan:
    new: dict[tuple[str, int], PartitionMetadata] = {}
    results = []
    for request in requests:
        key = (request.topic, request.partition)
        try:
            if key in new:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
            changed = _reassigned(state, request, rules)
        except ApiError as refusal:
            results.append(PartitionResult(topic=key[0], partition=key[1], error=refusal.code, message=refusal.message))
            continue
        if changed is not None:
            new[key] = changed
        results.append(PartitionResult(topic=key[0], partition=key[1]))
    return partitions_plan(state, [(name, partition) for (name, _), partition in new.items()], answer=results)


def _reassigned(state: ClusterState, request: Reassignment, rules: TopicRules) -> PartitionMetadata | None:
    """Returns the partition's next state, or None if nothing changes. Raises `ApiError`."""
    topic, partition = state.topic(request.topic), state.partition(request.topic, request.partition)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shortened(f"Unable to find a topic named {request.topic}."))
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {request.topic}:{request.partition}.")
    if partition.partition_epoch < 0:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "The partition's state is missing or damaged in the metadata store.")
    target = request.replicas
    if target is None:
        if not is_moving(partition):
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        target = origin_of(partition)  # Not checked: these replicas may be on ended brokers, because nothing has to be copied to them.
    else:
        check_target(target, state.brokers)
    if not is_moving(partition) and tuple(target) == partition.replicas:
        return None
    moved = begun(partition, target, state.standing(), rules.in_sync_min(topic))
    return replace(moved, controller_epoch=state.controller_epoch)
