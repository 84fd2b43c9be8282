"""Decides about failed logs on live brokers: reads the brokers' reports and moves leadership.

A broker reports failed replicas in sequential nodes under `/log_dir_event_notification`, as in Kafka. Each report names all failed replicas
of the broker, so only the last one counts; an empty report says that all replicas work again. A failed replica cannot lead, and is removed
from the in-sync set like a replica on a dead broker. It is not eligible, because its log may hold fewer records when it is opened again. A
reopened replica is treated as if its broker had restarted without a proof. Reports are deleted after the decision. Only the present
controller remembers them, and brokers report again to the next one. A report under an earlier epoch of the broker is ignored.

A follower also reports a leader that lacks records below the follower's high watermark, for example after a disk was set back to an older
copy. The controller treats such a leader as a replica that has lost everything, and elects another replica by the rules of
`leader_election.py`. If none can be elected, the partition has no leader until an operator requests an unclean election.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from ottla.base.cluster_metadata import NO_LEADER, PartitionMetadata, ReplicasFailed, TopicMetadata
from ottla.base.loop.procedure import Procedure
from ottla.base.loop.store_reads import list_children, read_in_order
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.loop.store_watch import StoreWatch
from ottla.base.ports import Delete, MetadataStore, StoreNode, Watch
from ottla.controller.damage_notes import damaged_line
from ottla.controller.leader_election import Standing
from ottla.controller.membership import after_membership
from ottla.controller.partition_states import Elections, NamedPartition, partitions_plan
from ottla.controller.plans import Plan, Unit
from ottla.controller.state import ClusterState
from ottla.controller.topic_rules import TopicRules
from ottla.metadata_store import znodes
from ottla.metadata_store.log_dir_nodes import LogDirEvent, ShortLeader, read_log_dir_event

log = logging.getLogger("ottla.controller")


def decide_log_dir_events(state: ClusterState, events: Sequence[LogDirEvent], rules: TopicRules) -> Plan:
    """Decides about the reports, oldest first."""
    failed = dict(state.failed)
    named: dict[tuple[bytes, int], list[int]] = {}  # the brokers that opened the replica again
    short: dict[tuple[bytes, int], tuple[int, ShortLeader]] = {}  # the reporting follower, and its report
    for event in events:
        broker = state.brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            continue
        before, failed[event.broker_id] = failed.get(event.broker_id, frozenset()), frozenset(event.replicas)
        for key in sorted(before ^ failed[event.broker_id]):
            named.setdefault(key, [])
        for key in event.reopened:
            named.setdefault(key, []).append(event.broker_id)
        for one in event.short:
            named.setdefault((one.topic_id, one.partition), [])
            short[one.topic_id, one.partition] = event.broker_id, one
    elections = Elections()
    new: list[NamedPartition] = []
    for key, reopened in named.items():
        topic = state.topic_by_id(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            continue
        standing = Standing(live=state.brokers, restarted=reopened, lost=reopened, leaving=state.leaving)
        standing = standing.without([broker_id for broker_id, replicas in failed.items() if key in replicas])
        partition = topic.partitions[key[1]]
        follower, reported = short.get(key, (NO_LEADER, None))
        if reported is not None and (reported.leader, reported.leader_epoch) == (partition.leader, partition.leader_epoch):
            changed = _without_short_leader(state, topic, partition, standing, rules, elections, follower)
        else:
            changed = after_membership(state, topic, partition, standing, rules, elections)
        if changed is not None:
            new.append((topic.name, changed))
    changes = [
        ReplicasFailed(broker_id, replicas)
        for broker_id, replicas in failed.items()
        if state.failed.get(broker_id, frozenset()) != replicas
    ]
    return partitions_plan(state, new, last=[Unit([], changes)], notes=elections.notes)


def _without_short_leader(
    state: ClusterState,
    topic: TopicMetadata,
    partition: PartitionMetadata,
    standing: Standing,
    rules: TopicRules,
    elections: Elections,
    follower: int,
) -> PartitionMetadata | None:
    """Returns the partition's next state after `follower` reported that the leader lacks acknowledged records.

    `emptied` keeps the reported brokers under the next leader as well. That leader may have copied the short log; if it is reported too,
    neither is elected again.
    """
    short = (*partition.emptied, partition.leader)
    elections.note_short(topic.name, partition, follower)
    distrusted = replace(
        standing,
        restarted=[*standing.restarted, *short], lost=[*standing.lost, *short], reduced=short, emptied=short,
    )  # fmt: skip
    changed = after_membership(state, topic, partition, distrusted, rules, elections)
    if changed is None:
        return None
    if changed.leader == NO_LEADER:
        return replace(changed, last_leader=follower)  # The follower holds more than the last leader.
    return replace(changed, emptied=tuple(replica for replica in partition.replicas if replica in short and replica != changed.leader))


class LogDirWatch:
    """Reads the reports at the start and whenever one arrives, until it is stopped. Calls `on_events(events, decided)`; `decided` deletes
    the read nodes, including damaged ones.
    """

    def __init__(
        self,
        store: MetadataStore,
        retries: StoreRetries,
        on_events: Callable[[list[LogDirEvent], Callable[[], object]], object],
    ) -> None:
        self._store = store
        self._on_events = on_events
        self._watch = StoreWatch(retries, self._read)

    def start(self) -> None:
        self._watch.start()

    def stop(self) -> None:
        self._watch.stop()

    def _read(self, watch: Watch) -> Procedure[None]:
        names = yield from list_children(self._store, znodes.LOG_DIR_EVENTS, watch)
        if names:
            nodes = yield from read_in_order(self._store, [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names])
            self._decide({name: _event(name, node) for name, node in zip(names, nodes, strict=True) if node is not None})

    def _decide(self, found: dict[str, LogDirEvent | None]) -> None:
        def delete() -> None:
            for name in sorted(found):
                self._store.multi([Delete(f"{znodes.LOG_DIR_EVENTS}/{name}")], lambda _outcome: None)

        self._on_events([event for _, event in sorted(found.items()) if event is not None], delete)


def _event(name: str, node: StoreNode) -> LogDirEvent | None:
    try:
        return read_log_dir_event(node.data)
    except znodes.NodeError as error:
        log.warning(damaged_line(f"{znodes.LOG_DIR_EVENTS}/{name}", error))
        return None
