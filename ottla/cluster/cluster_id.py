"""Reads the cluster's id in the metadata store, or creates it.

A broker needs the id before it opens its data directories. If several brokers start a new cluster together, the first one creates the node
and the others read it. A damaged node is not changed.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.immutable import immutable
from ottla.base.ports import Create, MetadataStore, Operation, Outcome, StoreNode, StoreResult
from ottla.metadata_store import znodes


@immutable(kw_only=True)
class KnownCluster:
    """The cluster that a data directory belongs to."""

    cluster_id: str
    directory: str
    has_logs: bool


Answered = Callable[[StoreResult, str], object]
"""Called with OK and the id, or with the failure and its reason in one line."""


def read_cluster_id(store: MetadataStore, done: Answered) -> None:
    """Calls `done` with the id; with NO_NODE if the store has none, REFUSED if the node is damaged."""

    def read(result: StoreResult, node: StoreNode | None) -> None:
        if node is None:
            done(result, f"{result.name} at {znodes.CLUSTER_ID}")
            return
        try:
            found = znodes.read_cluster_id(node.data)
        except znodes.NodeError as error:
            done(StoreResult.REFUSED, f"{znodes.CLUSTER_ID} in the metadata store holds no cluster id: {error}")
        else:
            done(StoreResult.OK, found)

    store.get(znodes.CLUSTER_ID, read)


def agree_on_cluster_id(store: MetadataStore, proposed: str, done: Answered) -> None:
    """Calls `done` with the id in the store. Creates it with the value `proposed` if there is none."""

    def on_read(result: StoreResult, text: str) -> None:
        if result is StoreResult.NO_NODE:
            _create(store, proposed, has_folder=False, done=done)
        else:
            done(result, text)

    read_cluster_id(store, on_read)


def _create(store: MetadataStore, proposed: str, *, has_folder: bool, done: Answered) -> None:
    folder = znodes.CLUSTER_ID.rpartition("/")[0]
    node = Create(znodes.CLUSTER_ID, znodes.cluster_id_bytes(proposed))
    operations: list[Operation] = [node] if has_folder else [Create(folder), node]

    def created(outcome: Outcome) -> None:
        if outcome.result is StoreResult.NODE_EXISTS and outcome.index == 0 and not has_folder:
            _create(store, proposed, has_folder=True, done=done)
        elif outcome.result in (StoreResult.OK, StoreResult.NODE_EXISTS):
            read_cluster_id(store, done)
        else:
            done(outcome.result, f"{outcome.result.name} at {znodes.CLUSTER_ID}")

    store.multi(operations, created)
