"""Registers a broker in the metadata store: the ephemeral node `/brokers/ids/N`, whose czxid is the broker's epoch.

First the nodes that every cluster has are created if they are missing, and the cluster's id is compared with the broker's own. After a
write with an unknown outcome the node is read: a node of the own session is the own registration.

The session of a killed process, and its nodes, last until the session times out. The registration names the data directories
(`incarnation`), which this process has locked: a node that names one of them belongs to an earlier life of this broker. It is replaced in
one multi, with `/controller` if that belongs to the same session, on condition that no election has happened since. Any other node refuses
the start with one line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import field

from ottla.base.cluster_metadata import BrokerMetadata, LogDirectoryHistory
from ottla.base.immutable import immutable
from ottla.base.loop.store_retries import TRANSIENT, StoreRetries
from ottla.base.ports import Check, Clock, Create, Delete, MetadataStore, Operation, Outcome, StoreNode, StoreResult
from ottla.controller.loading import cluster_id, read_paths
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.cluster")

ATTEMPTS_MAX = 16
"""Attempts to create the nodes: brokers that start together create the same ones, and each time one of them succeeds."""

Registered = Callable[[int, str], object]
"""The broker's epoch and the cluster's id."""


def _is_unproved() -> bool:
    return False


@immutable(kw_only=True)
class Registration:
    """The content of a broker's registration, and the id that a new cluster gets."""

    broker_id: int
    endpoints: Mapping[str, tuple[str, int]]
    protocols: Mapping[str, str]
    cluster_id: str
    rack: str | None = None
    incarnation: str = ""
    """The ids of the data directories, separated by commas."""
    histories: Mapping[str, LogDirectoryHistory] = field(default_factory=dict)
    """The generations of the data directories, by their ids."""
    is_clean: Callable[[], bool] = _is_unproved
    """Whether the logs are proved to have lost nothing since the last registration that a controller has dealt with."""


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
        def created(outcome: Outcome) -> None:
            if outcome.result in (StoreResult.OK, StoreResult.NODE_EXISTS):
                self._look(done, refused)
            else:
                self._again(outcome.result, lambda: self._create(done, refused), refused)

        self._store.multi([self._node()], created)

    def _node(self) -> Create:
        registration = self._registration
        broker = BrokerMetadata(
            broker_id=registration.broker_id, endpoints=registration.endpoints, rack=registration.rack, is_clean=registration.is_clean(),
            histories=registration.histories,
        )  # fmt: skip
        data = znodes.broker_bytes(broker, registration.protocols, self._clock.wall_ms(), incarnation=registration.incarnation)
        return Create(self._path, data, ephemeral=True)

    def _look(self, done: Registered, refused: Callable[[str], object]) -> None:
        """Looks which session owns the node."""

        def read(result: StoreResult, node: StoreNode | None) -> None:
            if result is StoreResult.NO_NODE:
                self._create(done, refused)
            elif node is None:
                self._again(result, lambda: self._look(done, refused), refused)
            elif node.ephemeral_owner == self._store.session_id():
                done(node.czxid, self._registration.cluster_id)
            elif self._is_own(node):
                self._replace(node, done, refused)
            else:
                in_use = f"broker.id {self._registration.broker_id} is in use: another broker is registered at {self._path}"
                refused(f"{in_use}, or was until a moment ago and its session has not ended yet")

        self._store.get(self._path, read)

    def _is_own(self, node: StoreNode) -> bool:
        """Whether the node belongs to an earlier life: it names a directory that this process has locked."""
        try:
            theirs = znodes.read_incarnation(node.data).split(",")
        except znodes.NodeError:
            return False
        return bool({*filter(None, theirs)} & {*filter(None, self._registration.incarnation.split(","))})

    def _replace(self, left_over: StoreNode, done: Registered, refused: Callable[[str], object]) -> None:
        """Registers in the place of the earlier life, and ends its controllership. The epoch is read before `/controller`: a successor that
        is elected in between has raised it, and is left alone."""
        epochs: list[StoreNode | None] = []

        def read_epoch(result: StoreResult, node: StoreNode | None) -> None:
            epochs.append(node)
            self._store.get(znodes.CONTROLLER, read_controller)

        def read_controller(result: StoreResult, node: StoreNode | None) -> None:
            operations: list[Operation] = [Delete(self._path, left_over.version), self._node()]
            epoch = epochs[0]
            if epoch is not None and node is not None and node.ephemeral_owner == left_over.ephemeral_owner:
                operations += [Check(znodes.CONTROLLER_EPOCH, epoch.version), Delete(znodes.CONTROLLER, node.version)]
            self._store.multi(operations, replaced)

        def replaced(outcome: Outcome) -> None:
            if outcome.result is StoreResult.OK:
                log.info("broker %d has replaced the registration that an earlier life of it left behind", self._registration.broker_id)
            if outcome.result in (StoreResult.OK, StoreResult.NO_NODE, StoreResult.BAD_VERSION, StoreResult.NODE_EXISTS):
                self._look(done, refused)
            else:
                self._again(outcome.result, lambda: self._look(done, refused), refused)

        self._store.get(znodes.CONTROLLER_EPOCH, read_epoch)

    def _again(self, result: StoreResult, function: Callable[[], object], refused: Callable[[str], object]) -> None:
        if result in TRANSIENT and result is not StoreResult.DISK_FAILED:
            self._retries.again(function)
        elif result is not StoreResult.SESSION_EXPIRED:
            refused(f"broker {self._registration.broker_id} cannot register: {result.name} in the metadata store")
