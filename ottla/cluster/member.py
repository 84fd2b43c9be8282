"""A broker as a member of its cluster: session, registration, served metadata, and the controller if it is elected.

After each registration the broker becomes a candidate for the controller. A controller passes messages for its own broker to `receiver` by
a call, and messages for other brokers to `remote`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.base.broker_ports import Ages
from ottla.base.cluster_metadata import ALL_BROKERS, CONFIG_BROKER, BrokerMetadata
from ottla.base.config import BrokerConfig
from ottla.base.control_messages import BrokerMessenger, ControlMessage, ReplicaListener
from ottla.base.errors import ErrorCode
from ottla.base.loop.lease import Lease
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Check, Clock, Delete, MetadataStore, Operation, Random, Timers
from ottla.base.types import TopicPartition
from ottla.cluster.control.receiver import ControlReceiver
from ottla.cluster.metadata_cache import MetadataCache
from ottla.cluster.registration import Registrar, Registration
from ottla.cluster.store_session import NO_EPOCH, BrokerSession
from ottla.controller.damage_notes import DamageNotes
from ottla.controller.local_controller import LocalController
from ottla.metadata_store import znodes
from ottla.replication.state import PartitionState

if TYPE_CHECKING:
    from ottla.base.delegation_token import DelegationToken
    from ottla.cluster.acl_rules import AclRules, RuleTable
    from ottla.cluster.delegation_tokens import DelegationTokens
    from ottla.cluster.member_watches import MemberWatches

log = logging.getLogger("ottla.cluster")


class NoOtherBrokers:
    """`BrokerMessenger` of a cluster of one."""

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Callable[[ErrorCode], object]) -> None:
        done(ErrorCode.NETWORK_EXCEPTION)


class ClusterMember:
    def __init__(
        self,
        *,
        store: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        ages: Ages,
        random: Random,
        metadata: MetadataCache,
        replicas: ReplicaListener,
        later: Callable[[Callable[[], object]], object],
        remote: BrokerMessenger | None = None,
        acl_table: RuleTable | None = None,
    ) -> None:
        """`later` calls a function in a separate iteration of the event loop. `acl_table` takes the access rules; None if the broker has no
        authorizer."""
        self.metadata = metadata
        self.session: BrokerSession | None = None
        self._store = store
        self._config = config
        self._clock = clock
        self._replicas = replicas
        self._remote = remote if remote is not None else NoOtherBrokers()
        self._retries = StoreRetries(store, timers)
        self._damage = DamageNotes()
        self.lease = Lease(store, clock, timers)
        self._on_registered: Callable[[], object] | None = None
        self._on_ready: Callable[[], object] | None = None
        self.on_own_settings: Callable[[], object] = lambda: None
        """Called after settings of brokers have changed."""
        self.receiver = ControlReceiver(
            metadata=metadata, replicas=replicas, broker_epoch=self.broker_epoch, on_broker_configs=self._take_broker_configs,
            on_roles_taken=self._roles_taken,
        )  # fmt: skip
        self._watches = None if config.is_single_broker else self._make_watches(timers)
        self.acl_rules = None if acl_table is None else self._make_acl_rules(acl_table, timers)
        self.delegation_tokens = None if config.delegation_token_key is None else self._make_delegation_tokens(ages)
        self.controller = LocalController(
            store=store, retries=self._retries, lease=self.lease, config=config, clock=clock, random=random, messenger=self,
            is_own_broker_new=lambda: self.receiver.is_new_to_controllers, later=later, timers=timers,
            newest_epoch=lambda: self.receiver.controller_epoch, damage=self._damage,
        )  # fmt: skip
        if config.is_single_broker:
            self.controller.own_failed = self._own_failed

    def _make_acl_rules(self, table: RuleTable, timers: Timers) -> AclRules:
        from ottla.cluster.acl_rules import AclRules  # imported on use: not needed without an authorizer

        return AclRules(self._store, self._retries, timers, table, is_alone=self._config.is_single_broker)

    def _make_delegation_tokens(self, ages: Ages) -> DelegationTokens:
        from ottla.cluster.delegation_tokens import DelegationTokens  # imported on use: most brokers have no tokens

        tokens = DelegationTokens(
            self._store, self._retries, ages.timers, ages.clock, is_alone=self._config.is_single_broker,
            expiry_interval_ms=self._config.delegation_token_expiry_check_interval_ms,
        )  # fmt: skip
        tokens.on_change = self._tokens_changed
        return tokens

    def _tokens_changed(self) -> None:
        self.metadata.on_credentials()

    @property
    def find_token(self) -> Callable[[str], DelegationToken | None] | None:
        """Returns the function that finds a token valid for logins, or None if delegation tokens are not configured."""
        return None if self.delegation_tokens is None else self.delegation_tokens.find

    def _make_watches(self, timers: Timers) -> MemberWatches:
        from ottla.cluster.member_watches import MemberWatches  # imported on use: not needed by a single broker

        return MemberWatches(
            self._store, self._retries, timers, config=self._config, metadata=self.metadata, broker_epoch=self.broker_epoch,
            on_settings=self.receiver.take_configs, removal_of=self._removal_of, on_marked_dead=self._marked_dead,
            damage=self._damage,
        )  # fmt: skip

    def start(
        self, registration: Registration, *, on_registered: Callable[[], object], refused: Callable[[str], object]
    ) -> None:
        """Registers, and becomes a candidate for the controller. Calls `on_registered` once, after access rules and tokens are loaded, or
        `refused` with the reason in one line. With the embedded store it is called before `start` returns."""
        self._on_registered = on_registered
        self.session = BrokerSession(
            store=self._store,
            retries=self._retries,
            registrar=Registrar(self._store, self._retries, self._clock, registration),
            on_registered=self._registered,
            on_expired=self._expired,
        )
        self.session.begin(refused)

    def call_when_ready(self, function: Callable[[], object]) -> None:
        """Calls `function` once, after this broker has carried out the next LeaderAndIsr of a controller."""
        self._on_ready = function

    @property
    def is_registered(self) -> bool:
        return self.broker_epoch() != NO_EPOCH

    def leave(self, done: Callable[[], object]) -> None:
        """Unregisters, and gives up the controller's office in the same write. If the write fails, the end of the session has the same
        effect."""
        assert self.session is not None, "a broker that has not started leaves"
        self.session.leave()
        self._stop_watches()
        operations = [*self.controller.stop(), Delete(znodes.broker_path(self._config.this_broker_id))]
        self._store.multi(operations, lambda _outcome: done())

    def broker_epoch(self) -> int:
        return self.session.broker_epoch if self.session is not None else NO_EPOCH

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Callable[[ErrorCode], object]) -> None:
        """Implements `BrokerMessenger`: calls `receiver` for this broker, and `remote` for others."""
        if broker.broker_id == self._config.this_broker_id:
            self.receiver.receive(message, done)
        else:
            self._remote.send(broker, message, done)

    def is_current(self, broker_id: int, message: ControlMessage) -> bool:
        """Whether a message to another broker is still valid: this broker is the controller of the message's epoch, and the receiver has
        not registered again since the message was written."""
        controller = self.controller
        if not controller.is_active or controller.state.controller_epoch != message.controller_epoch:
            return False
        broker = controller.state.brokers.get(broker_id)
        return broker is not None and broker.epoch == message.broker_epoch

    def _registered(self) -> None:
        assert self.session is not None
        self.metadata.cluster_id = self.session.cluster_id
        if self._watches is not None:
            self._watches.watch_mark(self.session.broker_epoch)
        on_registered, self._on_registered = self._on_registered, None
        readers = [reader for reader in (self.acl_rules, self.delegation_tokens) if reader is not None]
        if on_registered is not None:
            for reader in readers:  # Clients are served only when their permissions are known.
                on_registered = partial(reader.start, on_registered)
            on_registered()
        else:
            for reader in readers:
                reader.restart()
        if self._watches is not None:
            self._watches.watch_configs()
        self.controller.stand_for_election()

    def report_replicas(self, reopened: Sequence[TopicPartition]) -> None:
        """Reports to the controller that the set of failed replicas has changed; replicas in `reopened` work again. A single broker reports
        nothing: it still leads failed replicas, and refuses requests for them."""
        if self._watches is not None:
            self._watches.report_replicas(reopened)

    def _own_failed(self) -> frozenset[tuple[bytes, int]]:
        failed = [(self.metadata.topic(key.topic), key.partition) for key in self.metadata.offline_here()]
        return frozenset((topic.topic_id, partition) for topic, partition in failed if topic is not None)

    def report_short_leader(self, state: PartitionState) -> None:
        """Reports to the controller that the leader of this replica lacks acknowledged records that the replica holds."""
        if self._watches is not None:
            self._watches.report_short_leader(state)

    def review_reports(self) -> None:
        """Reports again to a new controller, or under a new registration."""
        if self._watches is not None:
            self._watches.review_reports(self.receiver.controller_epoch)

    def _stop_watches(self) -> None:
        if self._watches is not None:
            self._watches.stop()

    def _removal_of(self, path: str) -> list[Operation]:
        """Returns the operations that remove a znode if this broker is the controller, else none."""
        if not self.controller.is_active:
            return []
        return [Check(znodes.CONTROLLER_EPOCH, self.controller.state.controller_epoch_version), Delete(path)]

    def _expired(self, broker_epoch: int) -> None:
        self._stop_watches()
        self.receiver.end_registration(broker_epoch)
        self._replicas.on_session_expired()

    def _marked_dead(self) -> None:
        assert self.session is not None
        self.session.register_again()

    def _roles_taken(self) -> None:
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()

    def _take_broker_configs(self) -> None:
        of_all = self.metadata.configs(CONFIG_BROKER, ALL_BROKERS)
        of_this = self.metadata.configs(CONFIG_BROKER, str(self._config.this_broker_id))
        for notice in self._config.set_dynamic(of_all, of_this):
            log.warning(notice.text)
        self.on_own_settings()
