"""Checks in the metadata store that a partition no longer exists.

A broker's metadata lags behind: a topic that is missing in it may be deleted or just created. The check is a write that changes nothing,
because a quorum of the ensemble confirms writes, while a server that lags behind may answer reads.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.ports import Check, MetadataStore, StoreResult
from ottla.base.types import TopicPartition
from ottla.metadata_store import znodes

ANY_VERSION = -1


class DeletedPartitions:
    """Implements `transactions.markers.IsDeleted` with the metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def is_deleted(self, partition: TopicPartition, done: Callable[[bool], None]) -> None:
        """Calls `done(True)` if the partition's node is missing. Calls `done(False)` if it exists or the store cannot be asked."""
        node = Check(znodes.state_path(*partition), ANY_VERSION)
        self._store.multi([node], lambda outcome: done(outcome.result is StoreResult.NO_NODE))
