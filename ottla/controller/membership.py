"""Decides the consequences of brokers that register, end, restart or are about to stop.

A broker that registers again has a new epoch. Before the controller notes this epoch, it removes the broker from its leaderships and from
every in-sync set that has another member. If the broker has not proved that its logs are whole, the controller also removes it from the
eligible replicas (KIP-903, KIP-966; `leader_election.py` has the rules). So knowledge about one epoch is never used for the next.

The node `znodes.BROKER_EPOCHS` holds the epochs that all partitions' states take into account. It is written after the last state. Without
the node, a new controller would not notice that a broker restarted during the change of controllers. A controller that finds a registered
epoch other than the noted one, or none noted, decides as for a restart. A single broker needs no such note.

The node also holds the data directories of each broker, including absent brokers. A broker that registers without any of them, because its
disk was replaced, has lost all of its records, whatever the partitions' states and its own directories say. A broker that lacks some of
them has lost some records. A directory that was set back to an older copy of itself lacks the noted generation (`storage/generations.py`),
and is treated as a lost directory.

A broker whose process is provably dead (`cluster/failure_detector.py`) is treated as ended while its registration still exists. Its epoch
is marked as dead in the same node, so that no later controller regards it as live. If the process lives after all, it finds the mark and
registers again.

A damaged note is not overwritten. Each new controller then regards every broker as restarted and keeps the epochs in memory. No broker is
declared dead before its session ends, because it could not be marked.

A broker that asks to stop is in `leaving` until it ends or registers again: it is not added to an in-sync set, and not elected. Only this
controller knows it; after a change of controllers the broker asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ottla.base.cluster_metadata import (
    BrokerEpochsNoted,
    BrokerLeaving,
    BrokerMetadata,
    BrokerPut,
    BrokerRemoved,
    Change,
    PartitionMetadata,
    TopicMetadata,
)
from ottla.base.errors import ErrorCode
from ottla.base.ports import Create, Operation, Set
from ottla.controller import leader_election
from ottla.controller.leader_election import Standing
from ottla.controller.partition_states import Elections, NamedPartition, leaderless, led, partitions_plan, with_isr
from ottla.controller.plans import Plan, Unit
from ottla.controller.state import ClusterState
from ottla.controller.topic_rules import TopicRules
from ottla.metadata_store import znodes

NONE_GONE: Mapping[int, int] = MappingProxyType({})


def restarted_brokers(state: ClusterState, own_id: int, *, is_own_new: bool) -> list[BrokerMetadata]:
    """Returns the registered brokers with epochs that the partitions' states do not take into account yet; used by a new controller. No
    epoch is noted for a single broker: `is_own_new` says whether it has restarted."""
    if not state.noted_epochs and list(state.brokers) == [own_id]:
        return [state.brokers[own_id]] if is_own_new else []
    return [broker for broker_id, broker in sorted(state.brokers.items()) if state.noted_epochs.get(broker_id) != broker.epoch]


def is_gone(state: ClusterState, broker: BrokerMetadata, gone: Mapping[int, int]) -> bool:
    """Whether the process of this registration has ended although its session exists: its epoch is marked as dead, or can be
    marked because it is one of the epochs in `gone`."""
    found_gone = None if state.noted_version is None else gone.get(broker.broker_id)
    return broker.epoch in (found_gone, state.dead.get(broker.broker_id))


def decide_brokers_changed(
    state: ClusterState,
    joined: Sequence[BrokerMetadata],
    left: Sequence[int],
    rules: TopicRules,
    gone: Mapping[int, int] = NONE_GONE,
) -> Plan:
    """Decides about brokers that have registered (again) or ended. A new broker is added to the state after all partitions are written:
    with earlier messages it would get the roles of its former registration. The epochs in `gone` are marked as dead: the
    processes of these registered brokers have ended."""
    members: list[Change] = [BrokerRemoved(broker_id) for broker_id in left]
    members += [BrokerPut(broker) for broker in joined]
    epochs = {broker_id: broker.epoch for broker_id, broker in state.brokers.items() if broker_id not in left}
    epochs.update((broker.broker_id, broker.epoch) for broker in joined)
    reduced = [broker.broker_id for broker in joined if _missing_directories(state, broker)]
    standing = Standing(
        live=epochs,
        restarted={broker.broker_id: None for broker in joined},
        lost={broker.broker_id: None for broker in joined if not broker.is_clean or broker.broker_id in reduced},
        reduced=reduced,
        emptied=[broker.broker_id for broker in joined if _is_emptied(state, broker)],
        leaving=[broker_id for broker_id in state.leaving if epochs.get(broker_id) == state.leaving[broker_id]],
    )
    elections = Elections()
    new: list[NamedPartition] = []
    for topic, partition in state.partitions():
        changed = after_membership(state, topic, partition, state.standing_for(standing, topic, partition), rules, elections)
        if changed is not None:
            new.append((topic.name, changed))
    marks = {**state.dead, **{broker_id: gone[broker_id] for broker_id in left if broker_id in gone}}
    dead = {broker_id: epoch for broker_id, epoch in marks.items() if broker_id not in epochs}
    directories = {**state.noted_directories}
    directories.update((broker.broker_id, broker.directories) for broker in (*state.brokers.values(), *joined) if broker.directories)
    histories = {key: found for broker in (*state.brokers.values(), *joined) for key, found in broker.histories.items()}
    newest = {key: found.generations[-1] for key, found in histories.items() if found.generations}
    noted = BrokerEpochsNoted(epochs, None, dead, directories, {**state.noted_generations, **newest})
    notes = [_rolled_back_line(broker, key) for broker in joined for key in _rolled_back(state, broker)]
    return partitions_plan(state, new, last=[_noted(state, noted, members)], notes=[*notes, *elections.notes])


def _rolled_back(state: ClusterState, broker: BrokerMetadata) -> list[str]:
    """Returns the log directories of a broker that were set back to older copies."""
    noted = state.noted_generations
    named = {key: found.generations for key, found in broker.histories.items() if found.generations}
    return [key for key, generations in named.items() if key in noted and noted[key] not in generations]


def _missing_directories(state: ClusterState, broker: BrokerMetadata) -> list[str]:
    """Returns the noted data directories that the broker lacks, or has only as older copies. Returns none for a broker that names no
    directories."""
    noted = state.noted_directories.get(broker.broker_id, ()) if broker.directories else ()
    present = [directory for directory in broker.directories if directory not in _rolled_back(state, broker)]
    return [directory for directory in noted if directory not in present]


def _rolled_back_line(broker: BrokerMetadata, directory: str) -> str:
    return (
        f"broker {broker.broker_id} has an older copy of its log directory {broker.histories[directory].path} (directory.id {directory}): "
        f"its logs may lack records, so they count as empty, and other replicas lead"
    )


def _is_emptied(state: ClusterState, broker: BrokerMetadata) -> bool:
    missing = _missing_directories(state, broker)
    return bool(missing) and len(missing) == len(state.noted_directories[broker.broker_id])


def after_membership(
    state: ClusterState,
    topic: TopicMetadata,
    partition: PartitionMetadata,
    standing: Standing,
    rules: TopicRules,
    elections: Elections,
) -> PartitionMetadata | None:
    """Returns the partition's next state after brokers, or replicas on them, have started or ended. Returns None if it does not change."""
    in_sync_min = rules.in_sync_min(topic) if len(partition.replicas) > 1 else 1
    if standing.has_run_on(partition.leader):
        in_sync_min = leader_election.in_sync_min_while_eligible(partition, in_sync_min)
        return with_isr(state, partition, leader_election.in_sync_after(partition.isr, standing), in_sync_min, standing)
    elected = leader_election.elect_after_failure(partition, standing, is_unclean_allowed=rules.is_unclean_allowed(topic))
    if elected is None:
        changed = leaderless(state, partition, standing, in_sync_min)
        elections.note_waiting(topic.name, partition, changed)
        return changed
    elections.note(topic.name, partition, elected)
    return led(state, partition, elected, in_sync_min, standing)


def _noted(state: ClusterState, new: BrokerEpochsNoted, members: Sequence[Change]) -> Unit:
    """Returns the write of the noted epochs, with the changes of the brokers. There is no write if the note is damaged or unchanged, or for
    a single broker without a note."""
    version = state.noted_version
    known = BrokerEpochsNoted(state.noted_epochs, None, state.dead, state.noted_directories, state.noted_generations)
    if version is None:
        return Unit([], [new, *members])
    if new == known or (version < 0 and len(new.epochs) < 2 and not new.dead):
        return Unit([], members)
    data = znodes.broker_epochs_bytes(new.epochs, new.dead, new.directories, new.generations)
    write: Operation = Create(znodes.BROKER_EPOCHS, data) if version < 0 else Set(znodes.BROKER_EPOCHS, data, version)
    return Unit([write], [replace(new, version=version + 1), *members])


def decide_controlled_shutdown(state: ClusterState, leaving: int, broker_epoch: int, rules: TopicRules) -> Plan:
    """Elects other leaders for the partitions of a stopping broker, and removes it from in-sync sets. The answer is (error, partitions that
    it still leads although another replica lives)."""
    registered = state.brokers.get(leaving)
    if registered is None or broker_epoch not in (-1, registered.epoch):
        return Plan(answer=(ErrorCode.STALE_BROKER_EPOCH, []))
    standing = state.standing(leaving)
    new: list[NamedPartition] = []
    remaining = []
    for topic, partition in state.partitions():
        if partition.leader == leaving:
            elected = leader_election.elect_for_shutdown(partition, state.standing_for(standing, topic, partition))
            if elected is not None:
                new.append((topic.name, led(state, partition, elected, rules.in_sync_min(topic))))
            elif any(standing.may_lead(replica) for replica in partition.replicas):
                remaining.append((topic.name, partition.index))  # A live replica may become in sync later.
        elif leaving in partition.isr and len(partition.isr) > 1:
            isr = [member for member in partition.isr if member != leaving]
            changed = with_isr(state, partition, isr, leader_election.in_sync_min_while_eligible(partition, rules.in_sync_min(topic)))
            assert changed is not None, f"{topic.name}-{partition.index}: {leaving} was in sync"
            new.append((topic.name, changed))
    mark = BrokerLeaving(leaving, registered.epoch)
    return partitions_plan(state, new, at_once=[mark], answer=(ErrorCode.NONE, remaining))
