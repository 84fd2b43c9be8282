"""A broker in memory for the model of the relay: one transaction coordinator, one group, the sink's partitions.

Requests are function calls. Markers are written immediately and nothing is replicated, because the model tests only the order of requests.
`uses_v2` selects version 2 of the transaction protocol, in which a write adds its partition and each end raises the epoch. With
`is_verifying` a leader asks the coordinator before it begins a transaction in a partition (KIP-890), which older brokers do not do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ottla.client import Committed, ErrorCode, FencedError, KafkaError, StagedChunk, TopicPartition
from ottla.wire.batch_header import read_batch_header
from ottla.wire.checksum import crc32c

NO_MANIFEST, ANY_EPOCH = "no manifest check", "attach without the epoch"
"""Faults that are planted: what is staged is attached, whatever the manifest says; an attach is carried out in the transaction of now."""

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
CACHED_BATCHES = 5


@dataclass
class Stored:
    """A batch in a partition's log."""

    data: bytes
    state: str = OPEN


@dataclass
class Partition:
    """A log, and its leader's state of the only producer."""

    log: list[Stored] = field(default_factory=list)
    epoch: int = -1
    last_sequence: int = -1
    is_open: bool = False
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=CACHED_BATCHES))


class ModelBroker:
    """See the module."""

    def __init__(self, *, uses_v2: bool, is_verifying: bool = True, faults: frozenset[str] = frozenset()) -> None:
        self.uses_v2 = uses_v2
        self.is_verifying = is_verifying
        self.faults = faults
        self.stages: dict[tuple[bytes, int, TopicPartition], dict[int, bytes]] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.committed: dict[TopicPartition, Committed] = {}
        self.epoch = -1
        self.initializations = 0
        self._former_epoch = -1
        self._is_ongoing = False
        self._has_committed = False
        self._added: set[TopicPartition] = set()
        self._pending: dict[TopicPartition, Committed] = {}

    @property
    def has_pending_offsets(self) -> bool:
        return bool(self._pending)

    def partition(self, name: TopicPartition) -> Partition:
        return self.partitions.setdefault(name, Partition())

    # The coordinator of the transactional id

    def initialize(self, held_epoch: int) -> int:
        """InitProducerId; `held_epoch` is -1 for a producer that names none (KIP-360)."""
        if held_epoch not in (-1, self.epoch, self._former_epoch):
            raise FencedError(ErrorCode.PRODUCER_FENCED, "another producer has taken over")
        self.initializations += 1
        if self._is_ongoing:
            self._former_epoch, self.epoch = self.epoch, self.epoch + 1
            self._finish(is_commit=False)
        if held_epoch == -1:
            self._former_epoch, self.epoch = -1, self.epoch + 1
        elif held_epoch == self.epoch:
            self._former_epoch, self.epoch = self.epoch, self.epoch + 1
        self._has_committed = False
        return self.epoch

    def time_out(self) -> None:
        """Aborts the transaction because it has timed out."""
        if self._is_ongoing:
            self._former_epoch, self.epoch = -1, self.epoch + 1
            self._finish(is_commit=False)

    def add(self, epoch: int, partitions: Iterable[TopicPartition]) -> None:
        """AddPartitionsToTxn, and AddOffsetsToTxn without partitions."""
        self._check(epoch)
        self._is_ongoing = True
        self._added.update(partitions)

    def commit_offsets(self, epoch: int, offsets: Mapping[TopicPartition, Committed]) -> None:
        """TxnOffsetCommit."""
        if self.uses_v2:
            self.add(epoch, ())
        self._check(epoch)
        if not self._is_ongoing:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction")
        self._pending.update(offsets)

    def end(self, epoch: int) -> int:
        """EndTxn with commit; returns the epoch of the next transaction."""
        if self.uses_v2 and self._has_committed and not self._is_ongoing and epoch == self.epoch - 1:
            return self.epoch
        self._check(epoch)
        if self._is_ongoing:
            if self.uses_v2:
                self._former_epoch, self.epoch = self.epoch, self.epoch + 1
            self._finish(is_commit=True)
        elif not self._has_committed:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction")
        return self.epoch

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise FencedError(ErrorCode.PRODUCER_FENCED, f"epoch {epoch} is not {self.epoch}")

    def _finish(self, *, is_commit: bool) -> None:
        for name in self._added:
            partition = self.partition(name)
            for stored in partition.log:
                if stored.state == OPEN:
                    stored.state = COMMITTED if is_commit else ABORTED
            partition.is_open = False
            if self.epoch > partition.epoch:
                partition.epoch, partition.last_sequence = self.epoch, -1
                partition.recent.clear()
        if is_commit:
            self.committed.update(self._pending)
        self._pending.clear()
        self._added.clear()
        self._is_ongoing, self._has_committed = False, is_commit

    # The leaders

    def produce(self, epoch: int, name: TopicPartition, sequence: int, data: bytes) -> None:
        """Appends one batch of a transaction."""
        partition = self.partition(name)
        if epoch < partition.epoch:
            raise FencedError(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} is older than {partition.epoch}")
        if not (partition.is_open and epoch == partition.epoch):
            self._open(epoch, name)
        last = sequence + read_batch_header(data).record_count - 1
        if epoch == partition.epoch:
            if (sequence, last) in partition.recent:
                return
            if sequence != partition.last_sequence + 1:
                raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(sequence))
        elif sequence and partition.epoch != -1:
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(sequence))
        else:
            partition.recent.clear()
        partition.epoch, partition.last_sequence, partition.is_open = epoch, last, True
        partition.recent.append((sequence, last))
        partition.log.append(Stored(data))

    def stage(self, token: bytes, attempt_id: int, name: TopicPartition, number: int, data: bytes) -> None:
        """Stages a chunk."""
        chunks = self.stages.setdefault((token, attempt_id, name), {})
        if chunks.setdefault(number, data) != data:
            raise KafkaError(ErrorCode.INVALID_RECORD, "another chunk has this number")

    def lose_stages(self) -> None:
        """Restarts the leaders, which lose all staged chunks."""
        self.stages.clear()

    def attach(self, epoch: int, name: TopicPartition, sequence: int, token: bytes, manifest: Sequence[StagedChunk]) -> None:
        """Appends chunks of one batch each: the chunks after the last sequence number, if all of them are staged and equal the manifest."""
        partition = self.partition(name)
        if ANY_EPOCH in self.faults:
            epoch, sequence = max(epoch, self.epoch), partition.last_sequence + 1
        elif epoch < partition.epoch:
            raise FencedError(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} is older than {partition.epoch}")
        ends = list(accumulate((chunk.records for chunk in manifest), initial=sequence))
        wanted = [
            (start, chunk)
            for start, end, chunk in zip(ends, ends[1:], manifest, strict=False)
            if not (epoch == partition.epoch and partition.last_sequence >= end - 1)
        ]
        found = [(start, self._staged(token, name, chunk)) for start, chunk in wanted]
        for start, data in found:
            if data is not None:
                self.produce(epoch, name, start, data)

    def _staged(self, token: bytes, name: TopicPartition, chunk: StagedChunk) -> bytes | None:
        data = self.stages.get((token, chunk.attempt_id, name), {}).get(chunk.chunk)
        if NO_MANIFEST not in self.faults and (data is None or (len(data), crc32c(data)) != (chunk.length, chunk.crc)):
            raise KafkaError(ErrorCode.UNKNOWN_STAGE, str(name))
        return data

    def _open(self, epoch: int, name: TopicPartition) -> None:
        if self.uses_v2:
            self.add(epoch, [name])
        elif self.is_verifying:
            self._check(epoch)
            if not (self._is_ongoing and name in self._added):
                raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{name} is not in the transaction")
