"""Registers a broker in the metadata store: the ephemeral node `/brokers/ids/N`, whose czxid is the broker's epoch.

First the nodes that every cluster has are created if they are missing, and the cluster's id is compared with the broker's own. After a
write with an unknown outcome the node is read: if this session owns it, the registration succeeded.

The session of a killed process, and its nodes, last until the session times out. A registration contains the ids of the data directories
(`incarnation`), which this process has locked. So a node with one of these ids belongs to an earlier process of this broker. It is replaced
in one multi. The multi also deletes `/controller` if the same session owns it, on condition that no election has happened meanwhile. If the
node is another broker's, the registration is refused with the reason in one line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import TypeVar

from ottla.base.cluster_metadata import BrokerMetadata, LogDirectoryHistory, Renewal
from ottla.base.immutable import immutable
from ottla.base.loop.procedure import FOREVER, Procedure
from ottla.base.loop.store_reads import StoreFailure, read_in_order, read_node, write
from ottla.base.loop.store_retries import TRANSIENT, StoreRetries
from ottla.base.ports import Check, Clock, Create, Delete, MetadataStore, Operation, StoreNode, StoreResult
from ottla.controller.loading import cluster_id, read_paths
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.cluster")

T = TypeVar("T")

ATTEMPTS_MAX = 16
"""Maximum number of attempts to create the base nodes. Of brokers that start together, one succeeds in each attempt."""


class RegistrationRefused(Exception):
    """The broker cannot register; the text is the reason in one line."""


def _is_unproved() -> bool:
    return False


def _no_histories(_stored: Mapping[str, Renewal]) -> Mapping[str, LogDirectoryHistory]:
    return {}


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
    histories: Callable[[Mapping[str, Renewal]], Mapping[str, LogDirectoryHistory]] = _no_histories
    """Returns the generations of the data directories, by the directories' ids. Takes the renewals in the metadata store:
    a directory with an older renewal begins a new generation."""
    cordons: Mapping[str, bool] = field(default_factory=dict)
    """The path of each log directory, and whether the configuration file cordons it."""
    is_clean: Callable[[], bool] = _is_unproved
    """Returns whether the logs are proved to have lost nothing since the last registration that a controller has processed."""


class Registrar:
    def __init__(self, store: MetadataStore, retries: StoreRetries, clock: Clock, registration: Registration) -> None:
        self._store = store
        self._retries = retries
        self._clock = clock
        self._registration = registration
        self._path = znodes.broker_path(registration.broker_id)
        self._histories: Mapping[str, LogDirectoryHistory] = {}

    def register(self) -> Procedure[tuple[int, str]]:
        """Returns the broker's epoch and the cluster's id. Raises `RegistrationRefused`."""
        yield from self._retried(self._make_base_nodes)
        self._histories = self._registration.histories((yield from self._retried(self._read_renewals)))
        yield from self._retried(self._create)
        while True:
            node = yield from self._retried(partial(read_node, self._store, self._path))
            if node is None:
                yield from self._retried(self._create)
            elif node.ephemeral_owner == self._store.session_id():
                return node.czxid, self._registration.cluster_id
            elif self._is_own(node):
                yield from self._retried(partial(self._replace, node))
            else:
                in_use = f"broker.id {self._registration.broker_id} is in use: another broker is registered at {self._path}"
                raise RegistrationRefused(f"{in_use}, or was until a moment ago and its session has not ended yet")

    def withdraw(self) -> Procedure[None]:
        """Deletes the broker's node; retries until it succeeds."""
        outcome = yield from write(self._store, [Delete(self._path)])
        while outcome.result not in (StoreResult.OK, StoreResult.NO_NODE):
            yield self._retries.again
            outcome = yield from write(self._store, [Delete(self._path)])

    def _retried(self, step: Callable[[], Procedure[T]]) -> Procedure[T]:
        """Repeats a step after transient failures. Raises `RegistrationRefused` after others. If the session has expired, waits until the
        next session cancels it."""
        while True:
            try:
                return (yield from step())
            except StoreFailure as failure:
                if failure.result is StoreResult.SESSION_EXPIRED:
                    yield FOREVER
                if failure.result not in TRANSIENT or failure.result is StoreResult.DISK_FAILED:
                    name = failure.result.name
                    raise RegistrationRefused(
                        f"broker {self._registration.broker_id} cannot register: {name} in the metadata store"
                    ) from None
                yield self._retries.again

    def _make_base_nodes(self) -> Procedure[None]:
        """Creates the nodes that every cluster has. Raises `RegistrationRefused` in the store of another cluster."""
        own_id, result = self._registration.cluster_id, StoreResult.OK
        for _ in range(ATTEMPTS_MAX):
            result, nodes = yield partial(read_paths, self._store, [*znodes.BASE_PATHS, znodes.CLUSTER_ID])
            if result is not StoreResult.OK:
                raise StoreFailure(result)
            found = cluster_id(nodes, [])
            if found and found != own_id:
                raise RegistrationRefused(f"the metadata store belongs to cluster {found}, this broker to {own_id}")
            missing: list[Operation] = [Create(path) for path in znodes.BASE_PATHS if path not in nodes]
            if znodes.CLUSTER_ID not in nodes:
                missing.append(Create(znodes.CLUSTER_ID, znodes.cluster_id_bytes(own_id)))
            if not missing:
                return
            result = (yield from write(self._store, missing)).result
            if result is StoreResult.OK:
                return
            if result not in (StoreResult.NODE_EXISTS, StoreResult.NO_NODE):
                break
        raise StoreFailure(result)

    def _read_renewals(self) -> Procedure[Mapping[str, Renewal]]:
        """Returns the renewals that this broker has written, by the ids of its directories. Returns none if the node is damaged, or if an
        operator has deleted the epochs, because all brokers are set back to a backup."""
        path = znodes.renewals_path(self._registration.broker_id)
        epochs, node = yield from read_in_order(self._store, [znodes.BROKER_EPOCHS, path])
        try:
            return {} if epochs is None or node is None else znodes.read_renewals(node.data)
        except znodes.NodeError as error:
            log.warning("%s in the metadata store cannot be used, and is replaced: %s", path, error)
            return {}

    def _create(self) -> Procedure[None]:
        outcome = yield from write(self._store, [self._node()])
        if outcome.result not in (StoreResult.OK, StoreResult.NODE_EXISTS):
            raise StoreFailure(outcome.result)

    def _node(self) -> Create:
        registration = self._registration
        broker = BrokerMetadata(
            broker_id=registration.broker_id, endpoints=registration.endpoints, rack=registration.rack, is_clean=registration.is_clean(),
            histories=self._histories, cordons=registration.cordons,
        )  # fmt: skip
        data = znodes.broker_bytes(broker, registration.protocols, self._clock.wall_ms(), incarnation=registration.incarnation)
        return Create(self._path, data, ephemeral=True)

    def _is_own(self, node: StoreNode) -> bool:
        """Whether the node belongs to an earlier process of this broker: it has the id of a directory that this process has locked."""
        try:
            theirs = znodes.read_incarnation(node.data).split(",")
        except znodes.NodeError:
            return False
        return bool({*filter(None, theirs)} & {*filter(None, self._registration.incarnation.split(","))})

    def _replace(self, left_over: StoreNode) -> Procedure[None]:
        """Replaces the registration of an earlier process, and deletes its `/controller`. The epoch is read before `/controller`: if a
        successor is elected in between, the epoch has risen and the write fails."""
        epoch, controller = yield from read_in_order(self._store, [znodes.CONTROLLER_EPOCH, znodes.CONTROLLER])
        operations: list[Operation] = [Delete(self._path, left_over.version), self._node()]
        if epoch is not None and controller is not None and controller.ephemeral_owner == left_over.ephemeral_owner:
            operations += [Check(znodes.CONTROLLER_EPOCH, epoch.version), Delete(znodes.CONTROLLER, controller.version)]
        outcome = yield from write(self._store, operations)
        if outcome.result is StoreResult.OK:
            log.info("broker %d has replaced the registration of its earlier process", self._registration.broker_id)
        elif outcome.result not in (StoreResult.NO_NODE, StoreResult.BAD_VERSION, StoreResult.NODE_EXISTS):
            raise StoreFailure(outcome.result)
