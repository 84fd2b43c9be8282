"""A transactional id step by step, for code that may block: the procedures of `core/transaction.py`, run to their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.group_admin import Committed
from ottla.client.core.staging import StagedChunk
from ottla.client.core.transaction import TransactionCore


class Transaction:
    """The transactions of one transactional id, one after another. Not for use by two threads at once.

    `with` initializes the id if that was not done, begins a transaction, and commits it at the end, or aborts it upon an exception. After a
    `FencedError` stop: another producer has the id. After `OutcomeUnknownError` call `initialize` and compare the committed offsets.
    """

    def __init__(self, cluster: Cluster, core: TransactionCore) -> None:
        self._run = cluster.run
        self._core = core

    @property
    def transactional_id(self) -> str:
        return self._core.transactional_id

    @property
    def producer_id(self) -> int:
        """The producer id, -1 before `initialize`."""
        return self._core.identity.producer_id

    @property
    def epoch(self) -> int:
        """The producer epoch: raised by `initialize`, and with the second protocol by each `commit` and `abort`."""
        return self._core.identity.epoch

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._core.identity.is_open

    @property
    def uses_v2(self) -> bool:
        """Whether the second transaction protocol (KIP-890) is in use."""
        return self._core.identity.uses_v2

    def __enter__(self) -> Transaction:
        if self.producer_id < 0:
            self.initialize()
        self.begin()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.is_open:
            if kind is None:
                self.commit()
            else:
                self.abort()

    def initialize(self, producer_id: int = -1, epoch: int = -1) -> None:
        """Takes over the transactional id (InitProducerId): aborts what its former producer left open, and fences that one.

        Waits while a former transaction is being completed. A producer that names the id and epoch that it still holds gets a `FencedError`
        if another took over meanwhile (KIP-360).
        """
        self._run(self._core.initialize(producer_id, epoch))

    def begin(self) -> None:
        """Opens a transaction; nothing is sent."""
        self._core.begin()

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions to the transaction, once each (AddPartitionsToTxn); `produce` does it too. With `uses_v2` nothing is sent."""
        self._run(self._core.add_partitions(partitions))

    def produce(
        self, batches: Mapping[TopicPartition, Sequence[bytearray]], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Stamps producer id, epoch and sequence numbers into encoded batches, in place, and appends them in this order (acks=all).

        At most five requests are under way a leader. Returns the offset of each partition's first record. Not to be called again with the
        same batches: it repeats what has to be repeated itself, for `timeout_s` after the last progress.
        """
        return self._run(self._core.produce(batches, timeout_s=timeout_s))

    def attach(
        self, token: bytes, manifest: Mapping[TopicPartition, Sequence[StagedChunk]], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Appends chunks that `Client.stage` has put aside under the token, by any number of clients, in the order of the manifest.

        Returns the offset of each partition's first record, -1 where a repeated request does not show it. `KafkaError` UNKNOWN_STAGE if
        staged bytes expired or differ from the manifest: abort, and write them again. As `produce`, not to be called again with the
        same chunks.
        """
        return self._run(self._core.attach(token, manifest, timeout_s=timeout_s))

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | Committed],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None:
        """Commits a group's offsets as part of the transaction (TxnOffsetCommit); `Committed` carries leader epoch and metadata too.

        A consumer that is a live member names its member id and generation, so that a stale one is refused (KIP-447).
        """
        self._run(self._core.commit_offsets(group, offsets, member_id=member_id, generation=generation, instance_id=instance_id))

    def commit(self) -> None:
        """Commits the transaction (EndTxn), repeating it if its answer is lost. Raises `OutcomeUnknownError` without any answer."""
        self._run(self._core.commit())

    def abort(self) -> None:
        """Aborts the transaction (EndTxn), repeating it if its answer is lost."""
        self._run(self._core.abort())
