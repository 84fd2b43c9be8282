"""Notices that the controller has marked this live broker's registration as dead.

The controller does so when a broker seems provably dead (`failure_detector.py`): other replicas lead then, and requests under this broker's
epoch are refused. The broker has to register again, under a new epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.loop.procedure import Procedure
from ottla.base.loop.store_reads import node_exists, read_node
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.loop.store_watch import StoreWatch
from ottla.base.ports import MetadataStore, Watch
from ottla.metadata_store import znodes


class DeathMark:
    """Watches the node of the brokers' epochs for a mark on the current registration. Calls `on_marked` once for each marked registration.
    """

    def __init__(self, store: MetadataStore, retries: StoreRetries, broker_id: int, on_marked: Callable[[], object]) -> None:
        self._store = store
        self._broker_id = broker_id
        self._on_marked = on_marked
        self._broker_epoch = -1
        self._watch = StoreWatch(retries, self._read)

    def watch(self, broker_epoch: int) -> None:
        """Watches this registration instead of the former one."""
        self._broker_epoch = broker_epoch
        self._watch.start()

    def stop(self) -> None:
        self._watch.stop()

    def _read(self, watch: Watch) -> Procedure[None]:
        if (yield from node_exists(self._store, znodes.BROKER_EPOCHS, watch)):
            node = yield from read_node(self._store, znodes.BROKER_EPOCHS)
            if node is not None and _is_marked(node.data, self._broker_id, self._broker_epoch):
                self._watch.stop()
                self._on_marked()


def _is_marked(data: bytes, broker_id: int, broker_epoch: int) -> bool:
    try:
        return znodes.read_broker_epochs(data)[1].get(broker_id) == broker_epoch
    except znodes.NodeError:
        return False
