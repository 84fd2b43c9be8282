"""Notices that the controller has marked this broker's registration as dead, though the broker lives.

The controller does so when a broker seems provably dead (`failure_detector.py`): other replicas lead then, and requests under this broker's
epoch are refused. The broker has to register again, under a new epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import MetadataStore, StoreNode, StoreResult, WatchEvent
from ottla.metadata_store import znodes


class DeathMark:
    """Watches the node of the brokers' epochs for one registration after the other."""

    def __init__(self, store: MetadataStore, retries: StoreRetries, broker_id: int, on_marked: Callable[[], object]) -> None:
        self._store = store
        self._retries = retries
        self._broker_id = broker_id
        self._on_marked = on_marked
        self._round = 0

    def watch(self, broker_epoch: int) -> None:
        """For this registration, instead of the one before."""
        self._round += 1
        self._look(self._round, broker_epoch)

    def stop(self) -> None:
        self._round += 1

    def _look(self, number: int, broker_epoch: int) -> None:
        def again() -> None:
            if number == self._round:
                self._look(number, broker_epoch)

        def changed(event: WatchEvent) -> None:
            if event is WatchEvent.LOST:
                self._retries.again(again)
            else:
                again()

        def read(result: StoreResult, node: StoreNode | None) -> None:
            if number != self._round:
                return
            if node is not None and _is_marked(node.data, self._broker_id, broker_epoch):
                self._round += 1
                self._on_marked()
            elif node is None and result not in (StoreResult.NO_NODE, StoreResult.SESSION_EXPIRED):
                self._retries.again(again)

        def watching(result: StoreResult) -> None:
            if number != self._round:
                return
            if result is StoreResult.OK:
                self._store.get(znodes.BROKER_EPOCHS, read)
            elif result not in (StoreResult.NO_NODE, StoreResult.SESSION_EXPIRED):
                self._retries.again(again)

        self._store.exists(znodes.BROKER_EPOCHS, watching, watch=changed)


def _is_marked(data: bytes, broker_id: int, broker_epoch: int) -> bool:
    try:
        return znodes.read_broker_epochs(data)[1].get(broker_id) == broker_epoch
    except znodes.NodeError:
        return False
