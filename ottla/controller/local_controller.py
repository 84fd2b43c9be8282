"""Implements `api.Controller` on this broker: decides while this broker is elected, and answers NOT_CONTROLLER otherwise.

Once elected, it reads the cluster's state from the metadata store and decides the consequences of new and missing brokers. It sends every
live broker its replicas and the metadata, completes interrupted creations and deletions, and serves requests through its queue
(`command_queue.py`). It shares no state with brokers: even the broker in its own process has only its messages (`announcements.py`).

With the embedded store a request is usually answered before the method returns. A large one is written in parts, one in each iteration of
the event loop (`PARTITIONS_PER_WRITE`, `command_queue.OPERATIONS_AT_ONCE_MAX`). Answers about topics, new partitions and requested
elections wait until the brokers have answered the controller's messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.base.cluster_metadata import BrokerMetadata, BrokerRemoved, Change, TopicMetadata
from ottla.base.config import BrokerConfig
from ottla.base.control_messages import BrokerMessenger
from ottla.base.errors import ErrorCode
from ottla.base.loop.lease import Lease
from ottla.base.loop.procedure import CHECKPOINT, FOREVER, Procedure, Runner, pause
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Clock, MetadataStore, Operation, Random, StoreResult, Timers
from ottla.controller import configs, credentials, machine, membership, topics
from ottla.controller.announcements import Announcements
from ottla.controller.api import (
    AlterPartitionDone,
    ConfigRequest,
    ConfigResult,
    ElectionsDone,
    ElectionType,
    IsrChangeRequest,
    NewPartitions,
    NewTopic,
    PartitionResult,
    QuotaRequest,
    QuotaResult,
    Reassignment,
    ScramRequest,
    ScramResult,
    TopicResult,
    TopicsDone,
    failed_elections,
)
from ottla.controller.balance import decide_balance
from ottla.controller.broker_watch import BrokerWatch
from ottla.controller.command_queue import CommandQueue, QueuedCommand
from ottla.controller.controller_election import ControllerElection, Mandate
from ottla.controller.damage_notes import DamageNotes
from ottla.controller.loading import ROOTS, build_state, read_nodes
from ottla.controller.log_dir_events import LogDirWatch, decide_log_dir_events
from ottla.controller.plans import Decide, Plan
from ottla.controller.state import ClusterState
from ottla.controller.topic_rules import ConfiguredRules
from ottla.metadata_store.log_dir_nodes import LogDirEvent

T = TypeVar("T")
log = logging.getLogger("ottla.controller")

PARTITIONS_PER_WRITE = 150
"""Maximum number of partitions in several topics that one command creates; a single topic may have more. Each takes up to 0.1 ms."""

FIRST_BALANCE_MS = 5_000
"""Delay of the first balance after an election of the controller, in milliseconds, so that brokers can register before it."""

MOVES_PER_WRITE = 500
"""Maximum number of partitions that one command changes for AlterPartition or a reassignment. One write holds them and their topics."""


class LocalController:
    """The controller on one broker; active only while the broker is elected."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        retries: StoreRetries,
        lease: Lease,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        messenger: BrokerMessenger,
        is_own_broker_new: Callable[[], bool],
        newest_epoch: Callable[[], int],
        later: Callable[[Callable[[], object]], object],
        timers: Timers,
        damage: DamageNotes,
    ) -> None:
        """`is_own_broker_new`: no controller has sent this broker its replicas since it registered. `later`: in a later iteration."""
        self._store = store
        self._retries = retries
        self._lease = lease
        self._config = config
        self._random = random
        self._is_own_broker_new = is_own_broker_new
        self._later = later
        self._timers = timers
        self._broker_id = config.this_broker_id
        self.own_failed: Callable[[], frozenset[tuple[bytes, int]]] = frozenset
        """Returns the failed replicas of a single broker."""
        self._rules = ConfiguredRules(config)
        self._mandate: Mandate | None = None
        self._live: dict[int, BrokerMetadata] | None = None
        self._gone: dict[int, int] = {}  # dead brokers, with the epochs of their registrations
        self._is_announcing = False
        self._office = Runner()
        self._lease_end = Runner()
        self._second_reading = Runner()
        self._announcements = Announcements(messenger, clock, timers, config.this_broker_id)
        self._damage = damage
        self._brokers = BrokerWatch(store, retries, damage, self._on_brokers)
        self._log_dirs = LogDirWatch(store, retries, self._on_log_dir_events)
        self._queue = CommandQueue(
            store=store, retries=retries, later=later, on_applied=self._on_applied, read_state=self._read_again, resign=self._resign,
            may_act=self._may_act,
        )  # fmt: skip
        self._election = ControllerElection(
            store=store, retries=retries, clock=clock, broker_id=self._broker_id, on_elected=self._on_elected, on_lost=self._on_lost,
            newest_epoch=newest_epoch,
        )  # fmt: skip

    @property
    def is_active(self) -> bool:
        return self._queue.is_open and self._lease.is_held()

    @property
    def state(self) -> ClusterState:
        return self._queue.state

    def stand_for_election(self) -> None:
        """Becomes the controller, now or when the present one ends."""
        self._election.run()

    def stop(self) -> list[Operation]:
        """Ends the candidature. Returns the operations that remove `/controller` if this broker is the controller, else an empty list."""
        return self._election.stop()

    def call_when_announced(self, function: Callable[[], object]) -> None:
        """Calls `function` when the brokers have answered all messages sent so far, except silent ones (`SILENT_MS`)."""
        self._announcements.call_when_settled(function)

    def on_broker_gone(self, broker_id: int, epoch: int) -> None:
        """Handles the end of a process before its registration ends: elects other leaders, or takes over from an ended controller."""
        self._gone[broker_id] = epoch
        if self._mandate is not None:
            self._brokers.start()  # The decision needs the present registrations.
        else:
            self._election.take_over(broker_id, epoch)

    # Start and end of the office

    def _on_elected(self, mandate: Mandate) -> None:
        log.info("broker %d is the controller, epoch %d", self._broker_id, mandate.epoch)
        self._mandate = mandate
        self._live = None
        self._office.start(self._hold_office())

    def _on_lost(self) -> None:
        self._mandate = None
        self._is_announcing = False  # After the next election the whole state is sent.
        for runner in (self._office, self._lease_end, self._second_reading):
            runner.cancel()
        self._brokers.stop()
        self._log_dirs.stop()
        self._queue.close()

    def _resign(self, result: StoreResult) -> None:
        log.warning("broker %d is no longer the controller (%s)", self._broker_id, result.name)
        self._election.give_up()

    def _may_act(self) -> bool:
        """Whether the session certainly lives. If not, stops acting until the store shows the owner of `/controller`."""
        if self._lease.is_held():
            return True
        self._lapse()
        return False

    def _lapse(self) -> None:
        log.warning("broker %d stops acting as the controller: its session with the metadata store may be over", self._broker_id)
        self._election.lapse()

    def _lapse_with_lease(self) -> Procedure[None]:
        yield from self._lease.lapse()
        self._lapse()

    def _hold_office(self) -> Procedure[None]:
        """The controller's own work, from its election until it loses the office."""
        self._lease_end.start(self._lapse_with_lease())
        yield CHECKPOINT
        self._brokers.start()
        yield CHECKPOINT
        while (code := (yield from self._take_office())) is not ErrorCode.NONE:
            log.error("the controller cannot begin: %s", code.name)
            yield self._retries.again
        self._is_announcing = True
        self._announcements.everything(self.state, self.state.brokers.values())
        self._complete_interrupted()
        self._review_last_known()
        if self._live is not None:
            self._on_brokers(self._live)
        yield CHECKPOINT
        self._log_dirs.start()
        if self._lease.may_lapse:  # there may be other brokers
            yield from self._balance_leadership()

    def _take_office(self) -> Procedure[ErrorCode]:
        """Reads the state, opens the queue, and decides the consequences of new and missing brokers. Returns NONE or the error code."""
        state = yield from self._read_state()
        own = state.brokers.get(self._broker_id)
        if own is not None:
            self._announcements.settings(state, own)  # Settings may affect how leaders are elected.
            yield CHECKPOINT
        self._queue.open(state)
        is_own_new = self._is_own_broker_new()

        def decide(state: ClusterState) -> Plan:
            restarted = membership.restarted_brokers(state, self._broker_id, is_own_new=is_own_new)
            left = [broker_id for broker_id in sorted(state.brokers) if membership.is_gone(state, state.brokers[broker_id], self._gone)]
            return membership.decide_brokers_changed(
                state, [broker for broker in restarted if broker.broker_id not in left], left, self._rules, self._gone
            )

        _, code = yield from self._decided(decide)
        return code

    def _read_state(self) -> Procedure[ClusterState]:
        """Reads the cluster's state from the metadata store until it succeeds."""
        mandate = self._mandate
        assert mandate is not None, "this broker is the controller"
        while (read := (yield partial(read_nodes, self._store, ROOTS)))[0] is not StoreResult.OK:
            yield FOREVER if read[0] is StoreResult.SESSION_EXPIRED else self._retries.again
        state, notes = build_state(read[1])
        for note in filter(self._damage.is_new, notes):
            log.warning(note)
        state.controller_id = self._broker_id
        state.controller_epoch, state.controller_epoch_version = mandate.epoch, mandate.version
        return state

    def _balance_leadership(self) -> Procedure[None]:

        def moved(count: int) -> None:
            if count:
                log.info("leadership of %d partitions goes back to their preferred replicas", count)

        yield from pause(self._timers, FIRST_BALANCE_MS)
        while True:
            if self._config.auto_leader_rebalance_enable:
                percentage = self._config.leader_imbalance_per_broker_percentage
                self._submit(
                    lambda state: decide_balance(state, percentage, self._rules),  # noqa: B023
                    moved,
                    lambda code: log.error("balance of leadership: %s", code.name),
                )
            yield from pause(self._timers, 1000 * self._config.leader_imbalance_check_interval_seconds)

    def _review_last_known(self) -> None:
        self._submit(
            lambda state: machine.decide_last_known(state, self._rules),
            lambda _answer: None,
            lambda code: log.error("replicas that were eligible: %s", code.name),
        )

    def _complete_interrupted(self) -> None:
        """Completes creations and deletions that were interrupted between two writes."""

        def finish_deletions() -> None:
            if self.state.deleting:
                self._finish_deletion(list(self.state.deleting), lambda: None)

        if self.state.missing_nodes:
            self._submit(topics.decide_missing_states, lambda _answer: finish_deletions(), lambda _code: finish_deletions())
        else:
            finish_deletions()

    def _read_again(self, done: Callable[[ClusterState], object]) -> None:
        self._second_reading.start(self._read_second_time(done))

    def _read_second_time(self, done: Callable[[ClusterState], object]) -> Procedure[None]:
        """Reads the state again for the queue, sends it to the brokers, and submits decisions about changed brokers."""
        known, leaving, failed = dict(self.state.brokers), self.state.leaving, self.state.failed
        state = yield from self._read_state()
        state.take_leaving(leaving)
        state.take_failed(failed)
        if not self._is_announcing:
            done(state)  # `_take_office` is about to decide the consequences of new brokers.
            return
        # Brokers without a decision about their registration are removed from the state, so that they are sent nothing yet.
        joined = [broker for broker_id, broker in sorted(state.brokers.items()) if known.get(broker_id) != broker]
        state.apply([BrokerRemoved(broker.broker_id) for broker in joined])
        self._announcements.everything(state, state.brokers.values())
        yield CHECKPOINT
        done(state)
        yield CHECKPOINT
        self._submit_membership()
        self._complete_interrupted()

    def _on_brokers(self, live: dict[int, BrokerMetadata]) -> None:
        """Keeps the newest list of live brokers, and submits a decision about the changes."""
        self._live = live
        if self._is_announcing:
            self._submit_membership()

    def _membership_changes(self, state: ClusterState) -> tuple[list[BrokerMetadata], list[int]]:
        """Returns the brokers that have registered and the ids of brokers that have ended. The newest list is used, because a command may
        wait in the queue while newer lists arrive."""
        if self._live is None:
            return [], []
        present = [broker for _, broker in sorted(self._live.items()) if not membership.is_gone(state, broker, self._gone)]
        ids = [broker.broker_id for broker in present]
        return _unknown_of(state, present), [broker_id for broker_id in sorted(state.brokers) if broker_id not in ids]

    def _on_log_dir_events(self, events: list[LogDirEvent], decided: Callable[[], object]) -> None:
        self._submit(
            lambda state: decide_log_dir_events(state, events, self._rules),
            lambda _answer: decided(),
            lambda code: log.error("reports of failed logs: %s", code.name),
        )

    def _submit_membership(self) -> None:
        def decide(state: ClusterState) -> Plan:
            return membership.decide_brokers_changed(state, *self._membership_changes(state), self._rules, self._gone)

        self._submit(decide, lambda _answer: None, lambda code: log.error("brokers have changed: %s", code.name))

    # The controller's interface

    def create_topics(self, requests: Sequence[NewTopic], validate_only: bool, done: TopicsDone, *, timeout_ms: int | None = None) -> None:
        Runner().start(self._create_topics(requests, validate_only, done, timeout_ms))

    def _create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool, done: TopicsDone, timeout_ms: int | None
    ) -> Procedure[None]:
        """Creates the topics in groups (`PARTITIONS_PER_WRITE`), one group in each iteration of the event loop."""
        results: list[TopicResult] = []
        groups = topics.in_groups(requests, self._config, PARTITIONS_PER_WRITE)
        for index, group in enumerate(groups):
            if index > 0:
                yield self._later
            valid = [result for result in results if result.error is ErrorCode.NONE]
            decide = partial(
                topics.decide_create_topics, config=self._config, random=self._random, requests=group, validate_only=validate_only,
                partitions_before=sum(result.num_partitions for result in valid),
                names_before=[result.name for result in valid] if validate_only else (),
            )  # fmt: skip
            created, code = yield from self._decided(decide)
            if code is not ErrorCode.NONE:
                done(results + [TopicResult(name=request.name, error=code) for group in groups[index:] for request in group])
                return
            results += created
        self._announcements.call_when_settled(lambda: done(results), timeout_ms)

    def delete_topics(self, names: Sequence[str], done: TopicsDone, *, timeout_ms: int | None = None) -> None:
        def marked(results: list[TopicResult]) -> None:
            gone = [result.name for result in results if result.error is ErrorCode.NONE]
            if gone:
                self._finish_deletion(gone, lambda: done(results), timeout_ms)
            else:
                done(results)

        self._submit(
            lambda state: topics.decide_delete_topics(state, self._config, names),
            marked,
            lambda code: done([TopicResult(name=name, error=code) for name in names]),
        )

    def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool, done: TopicsDone, *, timeout_ms: int | None = None
    ) -> None:
        self._submit(
            lambda state: topics.decide_create_partitions(state, self._config, self._random, requests, validate_only=validate_only),
            lambda results: self._announcements.call_when_settled(lambda: done(results), timeout_ms),
            lambda code: done([TopicResult(name=request.name, error=code) for request in requests]),
        )

    def alter_configs(self, requests: Sequence[ConfigRequest], validate_only: bool, done: Callable[[list[ConfigResult]], None]) -> None:
        def altered(results: list[ConfigResult]) -> None:
            done(results)
            if any(entry.name == "min.insync.replicas" for request in requests for entry in request.entries) or any(
                request.is_replacing for request in requests
            ):
                self._review_last_known()

        self._submit(
            lambda state: configs.decide_alter_configs(state, self._config, requests, validate_only=validate_only),
            altered,
            lambda code: done([ConfigResult(resource_type=asked.resource_type, name=asked.name, error=code) for asked in requests]),
        )

    def alter_quotas(self, requests: Sequence[QuotaRequest], validate_only: bool, done: Callable[[list[QuotaResult]], None]) -> None:
        self._submit(
            lambda state: configs.decide_alter_quotas(state, self._config, requests, validate_only=validate_only),
            done,
            lambda code: done([QuotaResult(entity=request.entity, error=code) for request in requests]),
        )

    def alter_scram(self, requests: Sequence[ScramRequest], done: Callable[[list[ScramResult]], None]) -> None:
        self._submit(
            lambda state: credentials.decide_alter_scram(state, self._config, requests),
            done,
            lambda code: done([ScramResult(user=request.user, error=code) for request in requests]),
        )

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone) -> None:
        Runner().start(self._alter_partition(broker_id, broker_epoch, changes, done))

    def _alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone
    ) -> Procedure[None]:
        results: list[PartitionResult] = []
        for piece in _pieces(changes):
            answer, code = yield from self._decided(
                partial(machine.decide_alter_partition, broker_id=broker_id, broker_epoch=broker_epoch, changes=piece, rules=self._rules)
            )
            if code is not ErrorCode.NONE:
                done(code, [])
                return
            code, of_piece = answer
            results += of_piece
            if code is not ErrorCode.NONE:
                break
        done(code, results)

    def elect_leaders(
        self, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None, done: ElectionsDone, *, timeout_ms: int | None = None
    ) -> None:
        self._submit(
            lambda state: machine.decide_elect_leaders(state, kind, partitions, self._rules, self.own_failed()),
            lambda results: self._announcements.call_when_settled(lambda: done(results, ErrorCode.NONE), timeout_ms),
            lambda code: done(*failed_elections(partitions, code)),
        )

    def alter_reassignments(self, requests: Sequence[Reassignment], done: Callable[[list[PartitionResult]], None]) -> None:
        Runner().start(self._alter_reassignments(requests, done))

    def _alter_reassignments(self, requests: Sequence[Reassignment], done: Callable[[list[PartitionResult]], None]) -> Procedure[None]:
        results: list[PartitionResult] = []
        for piece in _pieces(requests):
            moved, code = yield from self._decided(partial(machine.decide_reassign, requests=piece, rules=self._rules))
            if code is not ErrorCode.NONE:
                left = requests[len(results) :]
                results += [PartitionResult(topic=asked.topic, partition=asked.partition, error=code) for asked in left]
                break
            results += moved
        done(results)

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Callable[[ErrorCode, list[tuple[str, int]]], None]) -> None:
        self._submit(
            lambda state: membership.decide_controlled_shutdown(state, broker_id, broker_epoch, self._rules),
            lambda answer: done(*answer),
            lambda code: done(code, []),
        )

    def _submit(
        self,
        decide: Callable[[ClusterState], Plan],
        done: Callable[[Any], object],
        failed: Callable[[ErrorCode], object],
        *,
        is_urgent: bool = False,
    ) -> None:
        self._queue.submit(QueuedCommand(decide, done, failed), is_urgent=is_urgent)

    def _decided(self, decide: Decide) -> Procedure[tuple[Any, ErrorCode]]:
        """Submits a command and waits for it. Returns its answer and NONE, or None and the error code."""
        answer, code = yield lambda resume: self._submit(
            decide, lambda answer: resume(answer, ErrorCode.NONE), lambda code: resume(None, code)
        )
        return answer, code

    # After a write

    def _on_applied(self, changes: Sequence[Change], before: Mapping[str, TopicMetadata | None]) -> None:
        if self._is_announcing:
            self._announcements.changes(self.state, changes, before)

    def _finish_deletion(self, names: Sequence[str], done: Callable[[], object], timeout_ms: int | None = None) -> None:
        """Stops the replicas, waits for the answers, then removes the nodes. After a failure the next controller finds the mark."""
        gone = [self.state.deleting[name] for name in names if name in self.state.deleting]
        self._announcements.stop(self.state, gone)

        def remove_nodes() -> None:
            self._submit(
                lambda state: topics.decide_finish_deletion(state, names), lambda _answer: done(), lambda _code: done(), is_urgent=True
            )

        self._announcements.call_when_settled(remove_nodes, timeout_ms)


def _pieces(items: Sequence[T]) -> list[Sequence[T]]:
    """Splits the items into pieces of `MOVES_PER_WRITE`. Returns one empty piece if there are no items."""
    return [items[start : start + MOVES_PER_WRITE] for start in range(0, len(items), MOVES_PER_WRITE)] or [items]


def _unknown_of(state: ClusterState, brokers: Sequence[BrokerMetadata]) -> list[BrokerMetadata]:
    """Returns the registrations that the state does not contain yet."""
    return [broker for broker in brokers if state.brokers.get(broker.broker_id) != broker]
