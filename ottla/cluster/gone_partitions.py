"""Whether a partition exists no longer, as the metadata store has it.

A broker's metadata lags behind: a topic that it does not name may have been deleted, or made a moment ago. The question is a write that
changes nothing, because writes are answered by the whole ensemble and reads by any server of it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.ports import Check, MetadataStore, StoreResult
from ottla.base.types import TopicPartition
from ottla.metadata_store import znodes

ANY_VERSION = -1


class GonePartitions:
    """`transactions.markers.IsGone` over the metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def is_gone(self, partition: TopicPartition, done: Callable[[bool], None]) -> None:
        """False also when it is not known, for want of a connection for instance."""
        node = Check(znodes.state_path(*partition), ANY_VERSION)
        self._store.multi([node], lambda outcome: done(outcome.result is StoreResult.NO_NODE))
