"""`api.Controller` on this broker: it decides while this broker is elected, and answers NOT_CONTROLLER otherwise.

Once elected, it reads the cluster's state from the metadata store, decides the consequences of new and missing brokers, completes
interrupted creations and deletions, sends every live broker its replicas and the metadata, and serves requests through its queue
(`command_queue.py`). Its state is its own: even the broker in the same process knows only the messages that it was sent
(`announcements.py`).

With the embedded store a request is answered before the method returns, unless it is large: topics with thousands of partitions are written
in parts, one in each iteration of the event loop, and the answer waits for the brokers to open their logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.base.cluster_metadata import BrokerMetadata, BrokerRemoved, Change, TopicMetadata
from ottla.base.config import BrokerConfig
from ottla.base.control_messages import BrokerMessenger
from ottla.base.errors import ErrorCode
from ottla.base.loop.lease import Lease
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Clock, MetadataStore, Operation, Random, StoreNode, StoreResult, Timers
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
)
from ottla.controller.balance import decide_balance
from ottla.controller.broker_watch import BrokerWatch
from ottla.controller.command_queue import Command, CommandQueue
from ottla.controller.controller_election import ControllerElection, Mandate
from ottla.controller.damage_notes import DamageNotes
from ottla.controller.loading import ROOTS, build_state, read_nodes
from ottla.controller.log_dir_events import LogDirWatch, decide_log_dir_events
from ottla.controller.plans import Plan
from ottla.controller.state import ClusterState
from ottla.controller.topic_rules import ConfiguredRules
from ottla.metadata_store.log_dir_nodes import LogDirEvent

log = logging.getLogger("ottla.controller")

PARTITIONS_PER_WRITE = 150
"""Topics of one request are created together up to so many partitions; each takes up to 0.1 ms of the loop before its log is made."""

FIRST_BALANCE_MS = 5_000
"""After an election brokers have so long to register before leadership is balanced."""

MOVES_PER_WRITE = 500
"""The number of partitions whose replicas change in one write; the nodes of their topics fit into it as well."""


class LocalController:
    """The controller's part of one broker."""

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
        """`is_own_broker_new`: no controller has sent this broker anything since it registered. `later` calls in a turn of its own."""
        self._store = store
        self._retries = retries
        self._lease = lease
        self._config = config
        self._random = random
        self._is_own_broker_new = is_own_broker_new
        self._later = later
        self._timers = timers
        self._broker_id = config.this_broker_id
        self._rules = ConfiguredRules(config)
        self._mandate: Mandate | None = None
        self._live: dict[int, BrokerMetadata] | None = None
        self._gone: dict[int, int] = {}  # brokers that are provably gone, with the epochs of their registrations
        self._is_announcing = False
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
        """Ends for good; returns the operations that give up the office, if it is held."""
        return self._election.stop()

    def call_when_announced(self, function: Callable[[], object]) -> None:
        """Calls `function` when the brokers have carried out all that was sent to them before, at once if they have."""
        self._announcements.call_when_settled(function)

    def on_broker_gone(self, broker_id: int, epoch: int) -> None:
        """Handles the end of a broker's process, whose registration may still exist: elects other leaders, or takes over from it."""
        self._gone[broker_id] = epoch
        if self._mandate is not None:
            self._brokers.start()  # What is decided rests on the registrations as they are now.
        else:
            self._election.take_over(broker_id, epoch)

    # Becoming controller, and ceasing to be

    def _on_elected(self, mandate: Mandate) -> None:
        log.info("broker %d is the controller, epoch %d", self._broker_id, mandate.epoch)
        self._mandate = mandate
        self._live = None
        self._lease.call_when_lapsed(self._lapse, is_wanted=lambda: mandate is self._mandate)
        self._brokers.start()
        self._read_state(self._begin)

    def _on_lost(self) -> None:
        self._mandate = None
        self._is_announcing = False  # until it is elected again and everything is sent at once
        self._brokers.stop()
        self._log_dirs.stop()
        self._queue.close()

    def _resign(self, result: StoreResult) -> None:
        log.warning("broker %d is no longer the controller (%s)", self._broker_id, result.name)
        self._election.give_up()

    def _may_act(self) -> bool:
        """Whether the session certainly lives. If not, another broker may be the controller: this one stops until the store has said."""
        if self._lease.is_held():
            return True
        self._lapse()
        return False

    def _lapse(self) -> None:
        log.warning("broker %d stops acting as the controller: its session with the metadata store may be over", self._broker_id)
        self._election.lapse()

    def _read_state(self, done: Callable[[ClusterState], object]) -> None:
        """Reads until it succeeds, or the mandate is over."""
        mandate = self._mandate

        def read(result: StoreResult, nodes: dict[str, StoreNode]) -> None:
            if mandate is None or mandate is not self._mandate or result is StoreResult.SESSION_EXPIRED:
                return
            if result is not StoreResult.OK:
                self._retries.again(lambda: self._read_state(done) if mandate is self._mandate else None)
                return
            state, notes = build_state(nodes)
            for note in filter(self._damage.is_new, notes):
                log.warning(note)
            state.controller_id = self._broker_id
            state.controller_epoch, state.controller_epoch_version = mandate.epoch, mandate.version
            done(state)

        read_nodes(self._store, ROOTS, read)

    def _begin(self, state: ClusterState) -> None:
        own = state.brokers.get(self._broker_id)
        if own is not None:
            self._announcements.settings(state, own)  # They may say how leaders are elected.
        self._is_announcing = False  # until everything is sent at once
        self._queue.open(state)
        is_own_new = self._is_own_broker_new()

        def decide(state: ClusterState) -> Plan:
            restarted = membership.restarted_brokers(state, self._broker_id, is_own_new=is_own_new)
            left = [broker_id for broker_id in sorted(state.brokers) if membership.is_gone(state, state.brokers[broker_id], self._gone)]
            return membership.decide_brokers_changed(
                state, [broker for broker in restarted if broker.broker_id not in left], left, self._rules, self._gone
            )

        self._submit(
            decide,
            lambda _answer: self._announce_all(),
            self._on_begin_failed,
        )

    def _on_begin_failed(self, code: ErrorCode) -> None:
        mandate = self._mandate
        if mandate is not None:
            log.error("the controller cannot begin: %s", code.name)
            self._retries.again(lambda: self._read_state(self._begin) if mandate is self._mandate else None)

    def _review_last_known(self) -> None:
        self._submit(
            lambda state: machine.decide_last_known(state, self._rules),
            lambda _answer: None,
            lambda code: log.error("replicas that were eligible: %s", code.name),
        )

    def _announce_all(self) -> None:
        self._is_announcing = True
        self._announcements.everything(self.state, self.state.brokers.values())
        self._complete_interrupted(lambda: None)
        self._review_last_known()
        if self._lease.may_lapse:  # there may be other brokers
            self._balance_later(self._mandate, FIRST_BALANCE_MS)
        if self._live is not None:
            self._on_brokers(self._live)
        self._log_dirs.start()

    def _balance_later(self, mandate: Mandate | None, delay_ms: int) -> None:
        self._timers.call_later(delay_ms, lambda: self._balance(mandate) if mandate is self._mandate else None)

    def _balance(self, mandate: Mandate | None) -> None:
        """Moves leadership back to preferred replicas, now and at intervals."""

        def moved(count: int) -> None:
            if count:
                log.info("leadership of %d partitions goes back to their preferred replicas", count)

        if self._config.auto_leader_rebalance_enable:
            percentage = self._config.leader_imbalance_per_broker_percentage
            self._submit(
                lambda state: decide_balance(state, percentage, self._rules),
                moved,
                lambda code: log.error("balance of leadership: %s", code.name),
            )
        self._balance_later(mandate, 1000 * self._config.leader_imbalance_check_interval_seconds)

    def _complete_interrupted(self, done: Callable[[], object]) -> None:
        """Ends creations and deletions that were interrupted between two writes."""

        def finish_deletions() -> None:
            if self.state.deleting:
                self._finish_deletion(list(self.state.deleting), done)
            else:
                done()

        if self.state.missing_nodes:
            self._submit(topics.decide_missing_states, lambda _answer: finish_deletions(), lambda _code: finish_deletions())
        else:
            finish_deletions()

    def _read_again(self, done: Callable[[ClusterState], object]) -> None:
        known, leaving, failed = dict(self.state.brokers), self.state.leaving, self.state.failed

        def loaded(state: ClusterState) -> None:
            state.take_leaving(leaving)
            state.take_failed(failed)
            if not self._is_announcing:
                done(state)  # What the brokers' coming means is about to be decided.
                return
            # The state that was read names brokers whose coming nothing has been decided about yet: they are sent nothing before.
            joined = [broker for broker_id, broker in sorted(state.brokers.items()) if known.get(broker_id) != broker]
            state.apply([BrokerRemoved(broker.broker_id) for broker in joined])
            self._announcements.everything(state, state.brokers.values())
            done(state)
            self._submit_membership()
            self._complete_interrupted(lambda: None)

        self._read_state(loaded)

    def _on_brokers(self, live: dict[int, BrokerMetadata]) -> None:
        """Decides the consequences of brokers that have registered or ended, if any have."""
        self._live = live
        if self._is_announcing:
            self._submit_membership()

    def _membership_changes(self, state: ClusterState) -> tuple[list[BrokerMetadata], list[int]]:
        """The brokers that have registered and those that have ended, by the newest list: an older list may be decided after a newer one.
        """
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
            joined, left = self._membership_changes(state)
            return membership.decide_brokers_changed(state, joined, left, self._rules, self._gone)

        self._submit(decide, lambda _answer: None, lambda code: log.error("brokers have changed: %s", code.name))

    # The controller's interface

    def create_topics(self, requests: Sequence[NewTopic], validate_only: bool, done: TopicsDone, *, timeout_ms: int | None = None) -> None:
        groups = topics.in_groups(requests, self._config, PARTITIONS_PER_WRITE)
        self._create_groups(groups, validate_only, [], done, timeout_ms)

    def _create_groups(
        self,
        groups: Sequence[Sequence[NewTopic]],
        validate_only: bool,
        before: list[TopicResult],
        done: TopicsDone,
        timeout_ms: int | None,
    ) -> None:
        """Creates the first group, then the others in later turns of the loop; `before` are the results of the earlier ones."""
        requests = groups[0]
        valid = [result for result in before if result.error is ErrorCode.NONE]
        made = sum(result.num_partitions for result in valid)

        def created(results: list[TopicResult]) -> None:
            results = before + results
            if len(groups) == 1:
                self._announcements.call_when_settled(lambda: done(results), timeout_ms)
            else:
                self._later(lambda: self._create_groups(groups[1:], validate_only, results, done, timeout_ms))

        def decide(state: ClusterState) -> Plan:
            return topics.decide_create_topics(
                state, self._config, self._random, requests, validate_only=validate_only, partitions_before=made,
                names_before=[result.name for result in valid] if validate_only else (),
            )  # fmt: skip

        def failed(code: ErrorCode) -> None:
            done(before + [TopicResult(name=request.name, error=code) for group in groups for request in group])

        self._submit(decide, created, failed)

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
        results: list[PartitionResult] = []

        def change(start: int) -> None:
            piece = changes[start : start + MOVES_PER_WRITE]

            def changed(answer: tuple[ErrorCode, list[PartitionResult]]) -> None:
                code, of_piece = answer
                results.extend(of_piece)
                if code is ErrorCode.NONE and start + MOVES_PER_WRITE < len(changes):
                    change(start + MOVES_PER_WRITE)
                else:
                    done(code, results)

            self._submit(
                lambda state: machine.decide_alter_partition(state, broker_id, broker_epoch, piece, self._rules),
                changed,
                lambda code: done(code, []),
            )

        change(0)

    def elect_leaders(
        self, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None, done: ElectionsDone, *, timeout_ms: int | None = None
    ) -> None:
        self._submit(
            lambda state: machine.decide_elect_leaders(state, kind, partitions, self._rules),
            lambda results: self._announcements.call_when_settled(lambda: done(results), timeout_ms),
            lambda code: done([PartitionResult(topic=topic, partition=index, error=code) for topic, index in partitions or ()]),
        )

    def alter_reassignments(self, requests: Sequence[Reassignment], done: Callable[[list[PartitionResult]], None]) -> None:
        results: list[PartitionResult] = []

        def move(start: int) -> None:
            piece = requests[start : start + MOVES_PER_WRITE]

            def moved(of_piece: list[PartitionResult]) -> None:
                results.extend(of_piece)
                if start + MOVES_PER_WRITE < len(requests):
                    move(start + MOVES_PER_WRITE)
                else:
                    done(results)

            def failed(code: ErrorCode) -> None:
                rest = [PartitionResult(topic=asked.topic, partition=asked.partition, error=code) for asked in requests[start:]]
                done([*results, *rest])

            self._submit(lambda state: machine.decide_reassign(state, piece, self._rules), moved, failed)

        move(0)

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
        self._queue.submit(Command(decide, done, failed), is_urgent=is_urgent)

    # After a write

    def _on_applied(self, changes: Sequence[Change], before: Mapping[str, TopicMetadata | None]) -> None:
        if self._is_announcing:
            self._announcements.changes(self.state, changes, before)

    def _finish_deletion(self, names: Sequence[str], done: Callable[[], object], timeout_ms: int | None = None) -> None:
        """Removes the replicas, then the nodes. After a failure the mark remains, and the next start continues from it."""
        gone = [self.state.deleting[name] for name in names if name in self.state.deleting]
        self._announcements.stop(self.state, gone)

        def remove_nodes() -> None:
            self._submit(
                lambda state: topics.decide_finish_deletion(state, names), lambda _answer: done(), lambda _code: done(), is_urgent=True
            )

        self._announcements.call_when_settled(remove_nodes, timeout_ms)


def _unknown_of(state: ClusterState, brokers: Sequence[BrokerMetadata]) -> list[BrokerMetadata]:
    """The registrations about whose coming nothing has been decided."""
    return [broker for broker in brokers if state.brokers.get(broker.broker_id) != broker]
