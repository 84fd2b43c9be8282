"""A broker as a member of its cluster: session, registration, served metadata, and the controller where it is elected.

Registering and becoming controller are two steps: the broker stands for election each time that it has registered. `messages` of the
controller reach this broker by a call; `remote` carries those to others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.cluster_metadata import ALL_BROKERS, CONFIG_BROKER, BrokerMetadata
from ottla.base.config import BrokerConfig
from ottla.base.control_messages import BrokerMessenger, ControlMessage, ReplicaListener
from ottla.base.errors import ErrorCode, StorageError
from ottla.base.ports import Clock, MetadataStore, Random, Timers
from ottla.base.store_retries import StoreRetries
from ottla.cluster.control import ControlReceiver
from ottla.cluster.metadata_cache import MetadataCache
from ottla.cluster.registration import Registrar, Registration
from ottla.cluster.session import NO_EPOCH, BrokerSession
from ottla.controller.local_controller import LocalController

log = logging.getLogger("ottla.cluster")


class NoOtherBrokers:
    """`BrokerMessenger` of a cluster of one."""

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Callable[[ErrorCode], object]) -> None:
        done(ErrorCode.NETWORK_EXCEPTION)


class ClusterMember:
    """One broker in its cluster."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        random: Random,
        metadata: MetadataCache,
        replicas: ReplicaListener,
        later: Callable[[Callable[[], object]], object],
        remote: BrokerMessenger | None = None,
    ) -> None:
        """`later` calls a function in a turn of the loop of its own."""
        self.metadata = metadata
        self.session: BrokerSession | None = None
        self._store = store
        self._config = config
        self._clock = clock
        self._remote = remote if remote is not None else NoOtherBrokers()
        self._retries = StoreRetries(store, timers)
        self._on_begun: Callable[[], object] | None = None
        self.receiver = ControlReceiver(
            metadata=metadata, replicas=replicas, broker_epoch=self.broker_epoch, on_broker_configs=self._take_broker_configs
        )
        self.controller = LocalController(
            store=store, retries=self._retries, config=config, clock=clock, random=random, messenger=self,
            is_own_broker_new=lambda: self.receiver.is_new_to_controllers, later=later,
        )  # fmt: skip

    def start(self, registration: Registration, on_begun: Callable[[], object], refused: Callable[[str], object]) -> None:
        """Registers and stands for election; `on_begun` is called when this broker has begun as controller, `refused` with the reason if it
        cannot register."""
        self._on_begun = on_begun
        self.session = BrokerSession(
            store=self._store,
            retries=self._retries,
            registrar=Registrar(self._store, self._retries, self._clock, registration),
            on_registered=self._on_registered,
            on_expired=lambda: None,
        )
        self.session.begin(refused)

    def join(self, registration: Registration) -> None:
        """`start` on the embedded store, which answers at once. Raises `StorageError` unless this broker is the controller afterwards."""
        reasons: list[str] = []
        has_begun: list[bool] = []
        self.start(registration, lambda: has_begun.append(True), reasons.append)
        if not has_begun:
            raise StorageError(reasons[0] if reasons else "the controller cannot begin: the metadata store cannot be written")

    def broker_epoch(self) -> int:
        return self.session.broker_epoch if self.session is not None else NO_EPOCH

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Callable[[ErrorCode], object]) -> None:
        """`BrokerMessenger`: to this broker by a call, to others by `remote`."""
        if broker.broker_id == self._config.this_broker_id:
            self.receiver.receive(message, done)
        else:
            self._remote.send(broker, message, done)

    def _on_registered(self) -> None:
        assert self.session is not None
        self.metadata.cluster_id = self.session.cluster_id
        on_begun, self._on_begun = self._on_begun, None
        self.controller.stand_for_election(on_begun)

    def _take_broker_configs(self) -> None:
        """Applies the settings of all brokers and of this one."""
        of_all = self.metadata.configs(CONFIG_BROKER, ALL_BROKERS)
        of_this = self.metadata.configs(CONFIG_BROKER, str(self._config.this_broker_id))
        for notice in self._config.set_dynamic(of_all, of_this):
            log.warning(notice.text)
