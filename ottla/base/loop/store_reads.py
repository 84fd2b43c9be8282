"""Reads and writes of the metadata store as steps of procedures (`procedure.py`).

A read raises `StoreFailure` if the store gave no answer or refused the request, so a procedure can handle all failures in one place.
`write` raises nothing and returns the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ottla.base.loop.procedure import Procedure
from ottla.base.ports import MetadataStore, Operation, Outcome, StoreNode, StoreResult, Watch


class StoreFailure(Exception):
    """The store gave no answer, or refused the request."""

    def __init__(self, result: StoreResult) -> None:
        super().__init__(result.name)
        self.result = result


def read_node(store: MetadataStore, path: str, watch: Watch | None = None) -> Procedure[StoreNode | None]:
    """Returns the node; None if it does not exist."""
    result, node = yield partial(store.get, path, watch=watch)
    if node is None and result is not StoreResult.NO_NODE:
        raise StoreFailure(result)
    found: StoreNode | None = node
    return found


def node_exists(store: MetadataStore, path: str, watch: Watch | None = None) -> Procedure[bool]:
    """Whether the node exists. The watch is also called when a missing node is created."""
    result = yield partial(store.exists, path, watch=watch)
    if result not in (StoreResult.OK, StoreResult.NO_NODE):
        raise StoreFailure(result)
    return bool(result is StoreResult.OK)


def read_in_order(store: MetadataStore, paths: Sequence[str]) -> Procedure[list[StoreNode | None]]:
    """Returns the nodes of the paths, None for each one that does not exist. The store executes the reads in this order, so each node was
    read after the node before it. Raises `StoreFailure`."""
    found: list[StoreNode | None] = []

    def begin(resume: Callable[..., None]) -> None:
        def read(result: StoreResult, node: StoreNode | None) -> None:
            if node is None and result is not StoreResult.NO_NODE:
                resume(result)
                return
            found.append(node)
            if len(found) == len(paths):
                resume(StoreResult.OK)

        for path in paths:
            store.get(path, read)

    result = (yield begin) if paths else StoreResult.OK
    if result is not StoreResult.OK:
        raise StoreFailure(result)
    return found


def list_children(store: MetadataStore, path: str, watch: Watch | None = None) -> Procedure[list[str] | None]:
    """Returns the names of the children, sorted; None if the node does not exist."""
    result, names = yield partial(store.children, path, watch=watch)
    if result is StoreResult.NO_NODE:
        return None
    if result is not StoreResult.OK:
        raise StoreFailure(result)
    found: list[str] = names
    return found


def write(store: MetadataStore, operations: Sequence[Operation]) -> Procedure[Outcome]:
    """Executes a multi and returns its outcome, whatever it is."""
    outcome: Outcome = yield partial(store.multi, operations)
    return outcome
