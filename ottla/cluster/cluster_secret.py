"""The cluster's secret in the metadata store, created by the first broker that needs it.

A broker reads the secret for its first connection with another broker, so a single broker has none. A damaged node is not overwritten:
brokers cannot authenticate each other until an operator removes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.ports import Create, MetadataStore, Outcome, Random, StoreNode, StoreResult
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.cluster")

SECRET_BYTES = 32

Done = Callable[[bytes | None], object]


class ClusterSecret:
    """Reads the secret and caches it. `read` calls `done` with the secret, or with None if it cannot be read now."""

    def __init__(self, store: MetadataStore, random: Random) -> None:
        self._store = store
        self._random = random
        self._secret: bytes | None = None
        self._waiting: list[Done] = []
        self._has_complained = False

    def read(self, done: Done) -> None:
        if self._secret is not None:
            done(self._secret)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._store.get(znodes.CLUSTER_SECRET, self._on_node)

    def _on_node(self, result: StoreResult, node: StoreNode | None) -> None:
        if node is not None:
            self._end(_secret_in(node.data))
        elif result is StoreResult.NO_NODE:
            secret = self._random.token_bytes(SECRET_BYTES).hex().encode()
            self._store.multi([Create(znodes.CLUSTER_SECRET, secret)], self._on_made)
        else:
            self._end(None)

    def _on_made(self, outcome: Outcome) -> None:
        """Reads the created secret, which may be another broker's."""
        if outcome.result in (StoreResult.OK, StoreResult.NODE_EXISTS, StoreResult.UNKNOWN):
            self._store.get(znodes.CLUSTER_SECRET, lambda _result, node: self._end(None if node is None else _secret_in(node.data)))
        else:
            self._end(None)

    def _end(self, secret: bytes | None) -> None:
        self._secret = secret
        if secret is None and not self._has_complained:
            self._has_complained = True
            log.error(
                "%s in the metadata store holds no secret or cannot be read: brokers cannot authenticate each other", znodes.CLUSTER_SECRET
            )
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(secret)


def _secret_in(data: bytes) -> bytes | None:
    try:
        secret = bytes.fromhex(data.decode("ascii"))
    except ValueError:
        return None
    return secret if len(secret) == SECRET_BYTES else None
