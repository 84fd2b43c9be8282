"""The controller at work: one queue of commands; decide, write to the metadata store, apply, tell the brokers, answer.

A command is decided only when the one before it has been applied, so a decision never rests on a state that is about to change. Between
decide and apply the controller waits for the store; the write is conditional on the controller epoch and on the versions that the
decision read, which is the check that nothing has changed meanwhile. A write that finds other versions, or whose outcome is unknown,
makes the controller read everything anew before it goes on; a write that finds another controller epoch ends its rule.

With the embedded store all this happens before a method returns, unless it is much: topics with thousands of partitions are written a
thousand or so at a time, one large one with a pause of the loop between decision and write, and whoever asked is answered when the broker
has opened the last of their logs. Left out: being a broker under another broker's controller (there is one
broker).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.base.cluster_metadata import (
    ALL_BROKERS,
    CONFIG_BROKER,
    BrokerMetadata,
    Change,
    ConfigPut,
    PartitionMetadata,
    PartitionPut,
    TopicMetadata,
    TopicPut,
    TopicRemoved,
)
from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode, StorageError
from ottla.base.ports import Clock, Create, MetadataStore, Node, Operation, Random, Set, StoreResult
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.controller import configs, machine, topics, znodes
from ottla.controller.api import (
    AlterPartitionDone,
    ClusterListener,
    ConfigRequest,
    ConfigResult,
    ElectionType,
    IsrChangeRequest,
    NewPartitions,
    NewTopic,
    PartitionResult,
    PartitionState,
    QuotaRequest,
    QuotaResult,
    Reassignment,
    StoppedReplica,
    TopicResult,
)
from ottla.controller.loading import ROOTS, build_state, read_head, read_nodes, read_paths
from ottla.controller.machine import Plan
from ottla.controller.state import ClusterState

log = logging.getLogger("ottla.controller")
ATTEMPTS_MAX = 3

PARTITIONS_PER_WRITE = 1000
"""Topics of one request are created together up to so many partitions; each takes some 30 us of the loop before its log is made."""

OPERATIONS_AT_ONCE_MAX = 4 * PARTITIONS_PER_WRITE
"""A larger write leaves the loop to others after it has been decided."""


@dataclass(slots=True)
class Command:
    """One entry of the queue. `failed` makes the answer for a write that could not be done."""

    decide: Callable[[], Plan]
    done: Callable[[Any], object]
    failed: Callable[[ErrorCode], object]
    attempts: int = 0
    is_deletion_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What this broker puts into the store about itself."""

    broker_id: int
    endpoints: Mapping[str, tuple[str, int]]
    protocols: Mapping[str, str]
    rack: str | None = None


class ControllerLoop:
    """`controller.api.Controller` over a metadata store, for the broker that registered itself with it."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        listener: ClusterListener,
        metadata: ClusterState | None = None,
        later: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        self.metadata = metadata if metadata is not None else ClusterState()
        self.is_active = False
        self._store = store
        self._config = config
        self._clock = clock
        self._random = random
        self._listener = listener
        self._later = later
        self._broker_id = -1
        self._queue: deque[Command] = deque()
        self._is_busy = False
        self._is_running = False
        # Until everything has been told at once, single changes are not told.
        self._has_told = False

    # Starting

    def start(self, registration: Registration, done: Callable[[], object], *, expected_cluster_id: str = "") -> None:
        """Registers the broker, becomes controller, loads the state and tells the broker its replicas; then `done`.

        Raises `StorageError` when the store belongs to another cluster or the broker's number is in use.
        """
        self._broker_id = registration.broker_id
        paths = (*znodes.BASE_PATHS, znodes.CLUSTER_ID, znodes.CONTROLLER_EPOCH)
        read_paths(self._store, paths, lambda _result, nodes: self._register(nodes, registration, expected_cluster_id, done))

    def _register(
        self, nodes: Mapping[str, Node], registration: Registration, expected_cluster_id: str, done: Callable[[], object]
    ) -> None:
        state = ClusterState()
        read_head(nodes, state, [])
        if state.cluster_id and expected_cluster_id and state.cluster_id != expected_cluster_id:
            raise StorageError(f"the metadata store belongs to cluster {state.cluster_id}, this broker to {expected_cluster_id}")
        operations: list[Operation] = [Create(path) for path in znodes.BASE_PATHS if path not in nodes]
        if znodes.CLUSTER_ID not in nodes:
            cluster_id = expected_cluster_id or self._config.ottla_cluster_id or uuid_to_text(fresh_uuid(self._random.token_bytes(16)))
            operations.append(Create(znodes.CLUSTER_ID, znodes.cluster_id_bytes(cluster_id)))
        if znodes.CONTROLLER_EPOCH in nodes:
            epoch = znodes.controller_epoch_bytes(state.controller_epoch + 1)
            operations.append(Set(znodes.CONTROLLER_EPOCH, epoch, nodes[znodes.CONTROLLER_EPOCH].version))
        else:
            operations.append(Create(znodes.CONTROLLER_EPOCH, znodes.controller_epoch_bytes(1)))
        now_ms = self._clock.wall_ms()
        broker = BrokerMetadata(broker_id=self._broker_id, endpoints=registration.endpoints, rack=registration.rack)
        path = znodes.broker_path(self._broker_id)
        operations.append(Create(path, znodes.broker_bytes(broker, registration.protocols, now_ms), ephemeral=True))
        operations.append(Create(znodes.CONTROLLER, znodes.controller_bytes(self._broker_id, now_ms), ephemeral=True))
        self._store.multi(operations, lambda outcome: self._on_registered(outcome.result, operations, outcome.index, done))

    def _on_registered(self, result: StoreResult, operations: Sequence[Operation], index: int, done: Callable[[], object]) -> None:
        if result is not StoreResult.OK:
            raise StorageError(f"broker {self._broker_id} cannot register: {result.name} at {operations[index].path} in the metadata store")
        self._load(lambda: self._begin(done))

    def _begin(self, done: Callable[[], object]) -> None:
        """Everything in the store is known; this broker counts as restarted, so each partition it leads gets a new leader epoch."""
        self.is_active = True
        this = self.metadata.brokers[self._broker_id]

        def begun(_answer: object) -> None:
            self._tell_everything()
            if self.metadata.deleting:
                self._finish_deletion(list(self.metadata.deleting.values()), done)
            else:
                done()

        def failed(code: ErrorCode) -> None:
            raise StorageError(f"the controller cannot begin: {code.name}")

        decide = lambda: machine.decide_brokers_changed(self.metadata, [this], [], self._may_elect_uncleanly)  # noqa: E731
        self._submit(Command(decide, begun, failed))

    def _load(self, done: Callable[[], object]) -> None:
        def loaded(_result: StoreResult, nodes: dict[str, Node]) -> None:
            state, notes = build_state(nodes)
            for note in notes:
                log.warning(note)
            state.controller_id = self._broker_id
            # The object stays the same: handlers hold it.
            self.metadata.__dict__.update(state.__dict__)
            self._take_broker_configs()
            done()

        read_nodes(self._store, ROOTS, loaded)

    def _tell_everything(self) -> None:
        self._has_told = True
        states = [self._told(topic, partition) for topic, partition in self.metadata.partitions() if self._broker_id in partition.replicas]
        self._listener.on_leader_and_isr(states)
        self._listener.on_update_metadata([topic.name for topic in self.metadata.topics()], [])

    # The controller's interface

    def create_topics(self, requests: Sequence[NewTopic], validate_only: bool, done: Callable[[list[TopicResult]], None]) -> None:
        groups = [requests] if validate_only else topics.in_groups(requests, self._config, PARTITIONS_PER_WRITE)
        self._create_groups(groups, validate_only, [], done)

    def _create_groups(
        self,
        groups: Sequence[Sequence[NewTopic]],
        validate_only: bool,
        before: list[TopicResult],
        done: Callable[[list[TopicResult]], None],
    ) -> None:
        """Creates the first group, then the others in later turns of the loop; `before` is what the earlier ones have become."""
        requests = groups[0]
        made = sum(result.num_partitions for result in before if result.error is ErrorCode.NONE)

        def created(results: list[TopicResult]) -> None:
            results = before + results
            if len(groups) == 1:
                self._listener.call_when_settled(lambda: done(results))
            else:
                self._soon(lambda: self._create_groups(groups[1:], validate_only, results, done))

        def decide() -> Plan:
            return topics.decide_create_topics(
                self.metadata, self._config, self._random, requests, validate_only=validate_only, partitions_before=made
            )

        self._submit(Command(decide, created, lambda code: created([TopicResult(name=request.name, error=code) for request in requests])))

    def delete_topics(self, names: Sequence[str], done: Callable[[list[TopicResult]], None]) -> None:
        def marked(results: list[TopicResult]) -> None:
            gone = [self.metadata.deleting[result.name] for result in results if result.error is ErrorCode.NONE]
            if gone:
                self._finish_deletion(gone, lambda: done(results))
            else:
                done(results)

        self._submit(
            Command(
                lambda: topics.decide_delete_topics(self.metadata, self._config, names),
                marked,
                lambda code: done([TopicResult(name=name, error=code) for name in names]),
            )
        )

    def create_partitions(self, requests: Sequence[NewPartitions], validate_only: bool, done: Callable[[list[TopicResult]], None]) -> None:
        self._submit(
            Command(
                lambda: topics.decide_create_partitions(self.metadata, self._config, self._random, requests, validate_only=validate_only),
                lambda results: self._listener.call_when_settled(lambda: done(results)),
                lambda code: done([TopicResult(name=request.name, error=code) for request in requests]),
            )
        )

    def alter_configs(self, requests: Sequence[ConfigRequest], validate_only: bool, done: Callable[[list[ConfigResult]], None]) -> None:
        def failed(code: ErrorCode) -> None:
            done([ConfigResult(resource_type=request.resource_type, name=request.name, error=code) for request in requests])

        self._submit(
            Command(
                lambda: configs.decide_alter_configs(self.metadata, self._config, requests, validate_only=validate_only),
                done,
                failed,
            )
        )

    def alter_quotas(self, requests: Sequence[QuotaRequest], validate_only: bool, done: Callable[[list[QuotaResult]], None]) -> None:
        self._submit(
            Command(
                lambda: configs.decide_alter_quotas(self.metadata, requests, validate_only=validate_only),
                done,
                lambda code: done([QuotaResult(entity=request.entity, error=code) for request in requests]),
            )
        )

    def alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone
    ) -> None:
        self._submit(
            Command(
                lambda: machine.decide_alter_partition(self.metadata, broker_id, broker_epoch, changes),
                lambda answer: done(*answer),
                lambda code: done(code, []),
            )
        )

    def elect_leaders(
        self, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None, done: Callable[[list[PartitionResult]], None]
    ) -> None:
        self._submit(
            Command(
                lambda: machine.decide_elect_leaders(self.metadata, kind, partitions),
                done,
                lambda code: done([PartitionResult(topic=topic, partition=index, error=code) for topic, index in partitions or ()]),
            )
        )

    def alter_reassignments(self, requests: Sequence[Reassignment], done: Callable[[list[PartitionResult]], None]) -> None:
        def failed(code: ErrorCode) -> None:
            done([PartitionResult(topic=request.topic, partition=request.partition, error=code) for request in requests])

        self._submit(Command(lambda: machine.decide_reassign(self.metadata, requests), done, failed))

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Callable[[ErrorCode, list[tuple[str, int]]], None]) -> None:
        self._submit(
            Command(
                lambda: machine.decide_controlled_shutdown(self.metadata, broker_id, broker_epoch),
                lambda answer: done(*answer),
                lambda code: done(code, []),
            )
        )

    # The queue

    def _submit(self, command: Command, *, is_urgent: bool = False) -> None:
        if not self.is_active:
            command.failed(ErrorCode.NOT_CONTROLLER)
            return
        if is_urgent:
            self._queue.appendleft(command)
        else:
            self._queue.append(command)
        self._run()

    def _run(self) -> None:
        """Works off the queue; returns when it is empty or a write is on its way."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._queue and not self._is_busy:
                self._start_command(self._queue.popleft())
        finally:
            self._is_running = False

    def _start_command(self, command: Command) -> None:
        command.attempts += 1
        plan = command.decide()
        if not plan.operations:
            self._apply(plan.changes)
            command.done(plan.answer)
            return
        self._is_busy = True
        if len(plan.operations) > OPERATIONS_AT_ONCE_MAX:
            self._soon(lambda: self._write(command, plan))
        else:
            self._write(command, plan)

    def _soon(self, function: Callable[[], object]) -> None:
        if self._later is None:
            function()
        else:
            self._later(function)

    def _write(self, command: Command, plan: Plan) -> None:
        try:
            self._store.multi(plan.operations, lambda outcome: self._on_written(command, plan, outcome.result, outcome.index))
        except StorageError as error:
            self._is_busy = False
            log.error("metadata store: %s", error)
            command.failed(ErrorCode.KAFKA_STORAGE_ERROR)
            self._run()

    def _on_written(self, command: Command, plan: Plan, result: StoreResult, index: int) -> None:
        self._is_busy = False
        if result is StoreResult.OK:
            self._apply(plan.changes)
            command.done(plan.answer)
        elif result is StoreResult.DISK_FAILED:
            command.failed(ErrorCode.KAFKA_STORAGE_ERROR)
        elif result is StoreResult.SESSION_EXPIRED or (result is StoreResult.BAD_VERSION and index == 0):
            self._resign(command, result)
        else:
            self._read_again(command, result)
        self._run()

    def _resign(self, command: Command, result: StoreResult) -> None:
        """Another controller rules, or the session is gone: nobody is answered from this state any more."""
        log.warning("broker %d is no longer the controller (%s)", self._broker_id, result.name)
        self.is_active = False
        waiting = [command, *self._queue]
        self._queue.clear()
        for refused in waiting:
            refused.failed(ErrorCode.NOT_CONTROLLER)

    def _read_again(self, command: Command, result: StoreResult) -> None:
        """The store was not as the decision believed, or the outcome is unknown: look, then decide anew."""
        log.warning("metadata store: %s; reading the cluster's state again", result.name)
        self._is_busy = True

        def looked() -> None:
            self._is_busy = False
            if result is StoreResult.UNKNOWN or command.attempts >= ATTEMPTS_MAX:
                command.failed(ErrorCode.REQUEST_TIMED_OUT if result is StoreResult.UNKNOWN else ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self._queue.appendleft(command)
            self._tell_everything()
            if self.metadata.deleting and not command.is_deletion_end:
                # The mark of a deletion was written though its answer was lost: what it began must end.
                self._finish_deletion(list(self.metadata.deleting.values()), lambda: None)
            self._run()

        self._load(looked)

    # After a write

    def _apply(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        names = {_topic_of(change): None for change in changes}
        before = {name: self.metadata.topic(name) for name in names if name is not None}
        self.metadata.apply(changes)
        if not self._has_told:
            return
        self._tell_replicas(before)
        for change in changes:
            if isinstance(change, ConfigPut):
                self._on_config(change)
        removed = [change.name for change in changes if isinstance(change, TopicRemoved)]
        if before or removed:
            self._listener.on_update_metadata([name for name in before if name not in removed], removed)

    def _tell_replicas(self, before: Mapping[str, TopicMetadata | None]) -> None:
        """Tells this broker what changed for its replicas."""
        states: list[PartitionState] = []
        stopped: list[StoppedReplica] = []
        for name, old in before.items():
            new = self.metadata.topic(name)
            if new is None:
                continue  # Its replicas are stopped by the second step of the deletion.
            known = old.partitions if old is not None else ()
            for partition in new.partitions:
                previous = known[partition.index] if partition.index < len(known) else None
                if partition == previous:
                    continue
                if self._broker_id in partition.replicas:
                    states.append(self._told(new, partition, is_new=previous is None))
                elif previous is not None and self._broker_id in previous.replicas:
                    stopped.append(_stopped(new, partition))
        if states:
            self._listener.on_leader_and_isr(states)
        if stopped:
            self._listener.on_stop_replica(stopped)

    def _finish_deletion(self, gone: Sequence[TopicMetadata], done: Callable[[], object]) -> None:
        """The replicas are gone: remove the nodes. A failure leaves the mark, and the next start goes on from there."""
        stopped = [_stopped(topic, partition) for topic in gone for partition in topic.partitions]
        self._listener.on_stop_replica(stopped)
        decide = lambda: topics.decide_finish_deletion(self.metadata, gone)  # noqa: E731
        command = Command(decide, lambda _: done(), lambda code: done(), is_deletion_end=True)
        self._listener.call_when_settled(lambda: self._submit(command, is_urgent=True))

    def _on_config(self, change: ConfigPut) -> None:
        if change.resource_type == CONFIG_BROKER:
            self._take_broker_configs()
        self._listener.on_configs(change.resource_type, change.name)

    def _take_broker_configs(self) -> None:
        cluster = self.metadata.configs(CONFIG_BROKER, ALL_BROKERS)
        for notice in self._config.set_dynamic(cluster, self.metadata.configs(CONFIG_BROKER, str(self._broker_id))):
            log.warning(notice.text)

    def _may_elect_uncleanly(self, topic: TopicMetadata) -> bool:
        return bool(self._config.topic_value("unclean.leader.election.enable", topic.configs))

    def _told(self, topic: TopicMetadata, partition: PartitionMetadata, *, is_new: bool = False) -> PartitionState:
        return PartitionState(topic=topic.name, topic_id=topic.topic_id, partition=partition, is_new=is_new)


def _topic_of(change: Change) -> str | None:
    if isinstance(change, TopicPut):
        return change.topic.name
    if isinstance(change, TopicRemoved):
        return change.name
    return change.topic if isinstance(change, PartitionPut) else None


def _stopped(topic: TopicMetadata, partition: PartitionMetadata) -> StoppedReplica:
    return StoppedReplica(
        topic=topic.name, topic_id=topic.topic_id, partition=partition.index, leader_epoch=partition.leader_epoch, is_deleted=True
    )
