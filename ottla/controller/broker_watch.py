"""The live brokers, as the ephemeral nodes under `/brokers/ids` show them: read at the start and after every change of the children."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import MetadataStore, StoreNode, StoreResult, WatchEvent
from ottla.controller.damage_notes import DamageNotes, damaged_line
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.controller")


class BrokerWatch:
    """Calls `on_brokers` with all live brokers, until it is stopped."""

    def __init__(
        self,
        store: MetadataStore,
        retries: StoreRetries,
        damage: DamageNotes,
        on_brokers: Callable[[dict[int, BrokerMetadata]], object],
    ) -> None:
        self._store = store
        self._retries = retries
        self._damage = damage
        self._on_brokers = on_brokers
        self._round = 0

    def start(self) -> None:
        self._round += 1
        number = self._round
        self._store.children(
            znodes.BROKER_IDS,
            lambda result, names: self._on_names(number, result, names),
            watch=lambda event: self._on_change(number, event),
        )

    def stop(self) -> None:
        self._round += 1

    def _on_change(self, number: int, event: WatchEvent) -> None:
        if number == self._round:
            if event is WatchEvent.LOST:
                self._again()
            else:
                self.start()

    def _again(self) -> None:
        number = self._round
        self._retries.again(lambda: self.start() if number == self._round else None)

    def _on_names(self, number: int, result: StoreResult, names: list[str]) -> None:
        if number != self._round:
            return
        if result is not StoreResult.OK:
            self._again()
            return
        waiting = dict.fromkeys(name for name in names if name.isascii() and name.isdigit())
        found: dict[int, BrokerMetadata] = {}

        def read(name: str, result: StoreResult, node: StoreNode | None) -> None:
            if number != self._round:
                return
            if result not in (StoreResult.OK, StoreResult.NO_NODE):
                self._round += 1
                self._again()
                return
            if node is not None:
                self._add(found, int(name), node)
            del waiting[name]
            if not waiting:
                self._on_brokers(found)

        if not waiting:
            self._on_brokers(found)
        for name in list(waiting):
            self._store.get(znodes.broker_path(int(name)), lambda result, node, name=name: read(name, result, node))  # type: ignore[misc]

    def _add(self, found: dict[int, BrokerMetadata], broker_id: int, node: StoreNode) -> None:
        try:
            found[broker_id] = znodes.read_broker(broker_id, node.data, node.czxid)
        except znodes.NodeError as error:
            note = damaged_line(znodes.broker_path(broker_id), error)
            if self._damage.is_new(note):
                log.warning(note)
