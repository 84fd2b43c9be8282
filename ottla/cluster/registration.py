"""Registering a broker in the metadata store: the ephemeral node `/brokers/ids/N`, whose czxid is the broker's epoch.

Before it the nodes that every cluster has are created where they are missing, and the cluster's id is compared with the broker's own. An
id that another session holds is refused with one line. After a write whose outcome is unknown the node is
read: one of the own session is the own registration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.immutable import immutable
from ottla.base.ports import Clock, Create, Delete, MetadataStore, Operation, Outcome, StoreNode, StoreResult
from ottla.base.store_retries import TRANSIENT, StoreRetries
from ottla.controller import znodes
from ottla.controller.loading import cluster_id, read_paths

ATTEMPTS_MAX = 16
"""Attempts to create the nodes: brokers that start together create the same ones, and each time one of them succeeds."""

Registered = Callable[[int, str], object]
"""The broker's epoch and the cluster's id."""


@immutable(kw_only=True)
class Registration:
    """What a broker registers about itself, and the id of its cluster: the id that a new cluster gets."""

    broker_id: int
    endpoints: Mapping[str, tuple[str, int]]
    protocols: Mapping[str, str]
    cluster_id: str
    rack: str | None = None


class Registrar:
    """Registers one broker, as often as it has a new session."""

    def __init__(self, store: MetadataStore, retries: StoreRetries, clock: Clock, registration: Registration) -> None:
        self._store = store
        self._retries = retries
        self._clock = clock
        self._registration = registration
        self._path = znodes.broker_path(registration.broker_id)
        self._attempts = 0

    def register(self, done: Registered, refused: Callable[[str], object]) -> None:
        """`refused` gets the reason in one line."""
        self._attempts = 0
        self._prepare(done, refused)

    def withdraw(self, done: Callable[[Outcome], object]) -> None:
        """Deletes the broker's node."""
        self._store.multi([Delete(self._path)], done)

    def _prepare(self, done: Registered, refused: Callable[[str], object]) -> None:
        """Creates what every cluster has, then the broker's own node."""
        self._attempts += 1

        def read(result: StoreResult, nodes: dict[str, StoreNode]) -> None:
            if result is not StoreResult.OK:
                self._again(result, lambda: self._prepare(done, refused), refused)
                return
            found = cluster_id(nodes, [])
            if found and found != self._registration.cluster_id:
                refused(f"the metadata store belongs to cluster {found}, this broker to {self._registration.cluster_id}")
                return
            missing: list[Operation] = [Create(path) for path in znodes.BASE_PATHS if path not in nodes]
            if znodes.CLUSTER_ID not in nodes:
                missing.append(Create(znodes.CLUSTER_ID, znodes.cluster_id_bytes(self._registration.cluster_id)))
            if missing:
                self._store.multi(missing, lambda outcome: self._on_prepared(outcome, done, refused))
            else:
                self._create(done, refused)

        read_paths(self._store, [*znodes.BASE_PATHS, znodes.CLUSTER_ID], read)

    def _on_prepared(self, outcome: Outcome, done: Registered, refused: Callable[[str], object]) -> None:
        if outcome.result is StoreResult.OK:
            self._create(done, refused)
        elif outcome.result in (StoreResult.NODE_EXISTS, StoreResult.NO_NODE) and self._attempts < ATTEMPTS_MAX:
            self._prepare(done, refused)
        else:
            self._again(outcome.result, lambda: self._prepare(done, refused), refused)

    def _create(self, done: Registered, refused: Callable[[str], object]) -> None:
        registration = self._registration
        broker = BrokerMetadata(broker_id=registration.broker_id, endpoints=registration.endpoints, rack=registration.rack)
        data = znodes.broker_bytes(broker, registration.protocols, self._clock.wall_ms())

        def created(outcome: Outcome) -> None:
            if outcome.result in (StoreResult.OK, StoreResult.NODE_EXISTS):
                self._look(done, refused)
            else:
                self._again(outcome.result, lambda: self._create(done, refused), refused)

        self._store.multi([Create(self._path, data, ephemeral=True)], created)

    def _look(self, done: Registered, refused: Callable[[str], object]) -> None:
        """Looks which session owns the node."""

        def read(result: StoreResult, node: StoreNode | None) -> None:
            if result is StoreResult.NO_NODE:
                self._create(done, refused)
            elif node is None:
                self._again(result, lambda: self._look(done, refused), refused)
            elif node.ephemeral_owner != self._store.session_id():
                refused(f"broker.id {self._registration.broker_id} is in use: another broker is registered at {self._path}")
            else:
                done(node.czxid, self._registration.cluster_id)

        self._store.get(self._path, read)

    def _again(self, result: StoreResult, function: Callable[[], object], refused: Callable[[str], object]) -> None:
        if result in TRANSIENT and result is not StoreResult.DISK_FAILED:
            self._retries.again(function)
        elif result is not StoreResult.SESSION_EXPIRED:
            refused(f"broker {self._registration.broker_id} cannot register: {result.name} in the metadata store")
