"""A producer's identity for code that may block: the procedures of `core/producer_identity.py`, run to their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.group_admin import Committed
from ottla.client.core.producer_identity import TRANSACTION_TIMEOUT_MS, ProducerIdentityCore

__all__ = ["TRANSACTION_TIMEOUT_MS", "ProducerIdentity"]


class ProducerIdentity:
    """Id, epoch, sequences; with a transactional id also the partitions of the open transaction."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        may_use_v2: bool = False,
    ) -> None:
        self.core = ProducerIdentityCore(cluster.core, transactional_id=transactional_id, timeout_ms=timeout_ms, may_use_v2=may_use_v2)
        self.take_sequences = self.core.take_sequences
        self.epoch_of = self.core.epoch_of
        self.begin_epoch = self.core.begin_epoch
        self.begin = self.core.begin
        self.not_added = self.core.not_added
        self._run = cluster.run

    @property
    def transactional_id(self) -> str | None:
        return self.core.transactional_id

    @property
    def producer_id(self) -> int:
        return self.core.producer_id

    @property
    def epoch(self) -> int:
        return self.core.epoch

    @property
    def is_open(self) -> bool:
        return self.core.is_open

    def initialize(self, producer_id: int = -1, epoch: int = -1) -> None:
        """Gets id and epoch. With a transactional id this fences its former producer and ends what was left open."""
        self._run(self.core.initialize(producer_id, epoch))

    def identify(self) -> None:
        """Initializes the id if it has to be: at first, and after an end without an answer."""
        if self.core.is_lost:
            self._run(self.core.identify())

    def renew(self) -> None:
        """Gets another epoch, which ends a transaction that is open. `FencedError` if another producer took over the id meanwhile."""
        self._run(self.core.renew())

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions to the transaction before anything is written to them."""
        self._run(self.core.add(partitions))

    def add_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | Committed], *, member_id: str = "", generation: int = -1
    ) -> None:
        """Commits a group's offsets within the transaction."""
        self._run(self.core.add_offsets(group_id, offsets, member_id=member_id, generation=generation))

    def end(self, *, is_commit: bool) -> None:
        """Commits or aborts; a transaction that touched nothing ends without a request."""
        self._run(self.core.end(is_commit=is_commit))
