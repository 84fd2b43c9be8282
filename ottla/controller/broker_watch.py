"""Watches the live brokers: reads the ephemeral nodes under `/brokers/ids` at the start and after every change of the children. A damaged
node is skipped and logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.loop.procedure import Procedure
from ottla.base.loop.store_reads import StoreFailure, list_children, read_in_order
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.loop.store_watch import StoreWatch
from ottla.base.ports import MetadataStore, StoreNode, StoreResult, Watch
from ottla.controller.damage_notes import DamageNotes, damaged_line
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.controller")


class BrokerWatch:
    """Calls `on_brokers` with all live brokers after each reading, until it is stopped."""

    def __init__(
        self,
        store: MetadataStore,
        retries: StoreRetries,
        damage: DamageNotes,
        on_brokers: Callable[[dict[int, BrokerMetadata]], object],
    ) -> None:
        self._store = store
        self._damage = damage
        self._on_brokers = on_brokers
        self._watch = StoreWatch(retries, self._read)

    def start(self) -> None:
        self._watch.start()

    def stop(self) -> None:
        self._watch.stop()

    def _read(self, watch: Watch) -> Procedure[None]:
        names = yield from list_children(self._store, znodes.BROKER_IDS, watch)
        if names is None:
            raise StoreFailure(StoreResult.NO_NODE)
        ids = [int(name) for name in names if name.isascii() and name.isdigit()]
        nodes = yield from read_in_order(self._store, [znodes.broker_path(broker_id) for broker_id in ids])
        found: dict[int, BrokerMetadata] = {}
        for broker_id, node in zip(ids, nodes, strict=True):
            if node is not None:
                self._add(found, broker_id, node)
        self._on_brokers(found)

    def _add(self, found: dict[int, BrokerMetadata], broker_id: int, node: StoreNode) -> None:
        try:
            found[broker_id] = znodes.read_broker(broker_id, node.data, node.czxid)
        except znodes.NodeError as error:
            note = damaged_line(znodes.broker_path(broker_id), error)
            if self._damage.is_new(note):
                log.warning(note)
