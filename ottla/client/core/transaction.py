"""Runs the transactions of one transactional id step by step, for callers with encoded batches and their own offsets. Methods that send
requests are conversations: generators without I/O (`conversation.py`).

`initialize` takes over the id: it fences the former producer, and aborts or completes its open transaction. Each transaction consists of
`begin`, any of `add_partitions`, `produce`, `attach` and `commit_offsets`, and `commit` or `abort`. With version 2 of the protocol
(`uses_v2`, KIP-890) a write adds its partition or group to the transaction, so no request for this is sent, and each EndTxn raises the
epoch.

A commit or abort raises `OutcomeUnknownError` if no answer shows its outcome. After `initialize` the group's committed offsets show how the
transaction ended. Without `initialize` a commit may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.client.core.backoff import Deadline
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Conversation, within
from ottla.client.core.producer_identity import PRODUCE_V2, TRANSACTION_TIMEOUT_MS, ProducerIdentity
from ottla.client.core.raw_produce import append_batches
from ottla.client.core.staging import AttachPiece, Producing, StagedChunk, attach, pieces
from ottla.wire.batch_header import read_batch_header, stamp_producer


class TransactionCore(ProducerIdentity):
    """See the module. Without `may_use_v2` it uses version 1 of the transaction protocol."""

    def __init__(
        self, cluster: ClusterCore, transactional_id: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS, may_use_v2: bool = True
    ) -> None:
        super().__init__(cluster, transactional_id=transactional_id, timeout_ms=timeout_ms, may_use_v2=may_use_v2)

    def produce(
        self, batches: Mapping[TopicPartition, Sequence[bytearray]], *, timeout_s: float | None = None
    ) -> Conversation[dict[TopicPartition, int]]:
        """Stamps producer id, epoch and sequence numbers into encoded batches, in place, and appends them in this order (acks=all).

        At most five requests are in flight to each leader. Returns the offset of each partition's first record. It repeats requests itself
        until no batch is acknowledged for `timeout_s`, so the caller must not call it again with the same batches.
        """
        return self._produce(batches, self.cluster.deadline(timeout_s))

    def _produce(
        self, batches: Mapping[TopicPartition, Sequence[bytearray]], deadline: Deadline
    ) -> Conversation[dict[TopicPartition, int]]:
        yield from within(self.add_partitions(batches), deadline)
        for partition, some in batches.items():
            for batch in some:
                self._stamp(partition, batch)
        version = PRODUCE_V2 if self.uses_v2 else None
        appending = append_batches(self.cluster, batches, deadline, transactional_id=self.transactional_id, version=version)
        return (yield from self._appending(appending))

    def _appending(self, appending: Conversation[dict[TopicPartition, int]]) -> Conversation[dict[TopicPartition, int]]:
        """Runs a conversation that appends in the transaction. A failure causes a gap in the sequence numbers (`has_gap`). The transaction
        can then only be aborted.
        """
        had_gap, self.has_gap = self.has_gap, True
        offsets = yield from appending
        self.has_gap = had_gap
        return offsets

    def _stamp(self, partition: TopicPartition, batch: bytearray) -> None:
        count = read_batch_header(batch).last_offset_delta + 1
        stamp_producer(
            batch,
            0,
            len(batch),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.take_sequences(partition, count),
        )

    def attach(
        self, token: bytes, manifest: Mapping[TopicPartition, Sequence[StagedChunk]], *, timeout_s: float | None = None
    ) -> Conversation[dict[TopicPartition, int]]:
        """Appends chunks that any number of clients have staged under the token (`Client.stage`), in the order of the manifest.

        Returns the offset of each partition's first record, -1 if the answer to a repeated request does not contain it. Raises `KafkaError`
        UNKNOWN_STAGE if staged bytes have expired or differ from the manifest: then the caller aborts and writes them again. Like
        `produce`, it must not be called again with the same chunks.
        """
        return self._attach(token, manifest, self.cluster.deadline(timeout_s))

    def _attach(
        self, token: bytes, manifest: Mapping[TopicPartition, Sequence[StagedChunk]], deadline: Deadline
    ) -> Conversation[dict[TopicPartition, int]]:
        yield from within(self.add_partitions(manifest), deadline)
        producing = Producing(self._named(), self.producer_id, self.epoch, token, self.uses_v2)
        wanted = {partition: [self._attached(partition, some) for some in pieces(chunks)] for partition, chunks in manifest.items()}
        return (yield from self._appending(attach(self.cluster, producing, wanted, deadline)))

    def _attached(self, partition: TopicPartition, chunks: Sequence[StagedChunk]) -> AttachPiece:
        return AttachPiece(self.take_sequences(partition, sum(chunk.records for chunk in chunks)), chunks)

    def commit(self) -> Conversation[None]:
        """Commits the transaction (EndTxn), and repeats the request if its answer is lost. Raises `KafkaError` if a batch was not appended,
        and `OutcomeUnknownError` if no answer shows the outcome; then it may be called again.
        """
        yield from self.end(is_commit=True)

    def abort(self) -> Conversation[None]:
        """Aborts the transaction (EndTxn), and repeats the request if its answer is lost. Raises `OutcomeUnknownError` if no answer shows
        the outcome.
        """
        yield from self.end(is_commit=False)
