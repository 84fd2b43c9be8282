"""The producers of one partition: sequences, fencing, duplicates, open transactions and the last stable offset.

The state is computed from the batches in the log: leaders, followers and recovery all call `apply` and `apply_marker`, which never fail and
read no clock. `check` and `check_marker` accept or refuse a batch before a leader appends it, and change nothing. The last five batches of
a producer are kept with their sequences, offsets and CRC, so that a retry gets the offset of its first attempt. The same sequences with
other bytes are refused with INVALID_RECORD, because answering them as a duplicate would drop records silently. An older batch is refused
with DUPLICATE_SEQUENCE_NUMBER if all of its sequences were certainly appended. Any other batch that is out of order is refused with
OUT_OF_ORDER_SEQUENCE_NUMBER.

The CRC is not compared if the stored batch has the broker's time, a delete horizon or fewer records than offsets (compaction causes the
last two), if the codecs differ, or if Kafka's snapshot without CRCs was restored.

Invariants: sequences of one (producer, epoch) are contiguous modulo 2^31 (I19). A leader accepts no older epoch (I21). After its marker, a
transaction is in `completed` until the marker is below the high watermark. Until then the marker may be lost, so the last stable offset
stays at or below the transaction's first offset. `producer_snapshot.py` writes this state to Kafka's snapshot files.
`replication/verification.py` verifies transactions with their coordinator. `aborted.py` has the index of aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import pieces_of
from ottla.base.types import TopicPartition
from ottla.storage.producer_snapshot import CachedBatch, ProducerRow, SnapshotEncoder, decode_snapshot, encode_snapshot
from ottla.wire.batch_header import CODEC_MASK, DELETE_HORIZON_BIT, SEQUENCE_MASK, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.wire.records import CONTROL_ABORT

CACHED_BATCHES_MAX = 5
"""A producer may have five requests in flight, so a retry is one of the last five batches."""
_RUN_COMPARABLE_MAX = 1 << 30
"""Maximum distance at which a sequence is known to be older than another sequence. 2^30: sequences are modulo 2^31, so at a larger distance
the sequence may as well be newer."""


UNKNOWN_PRINCIPAL = ""
"""The principal of a producer that has written nothing to this leader yet."""
PRODUCERS_PER_STEP = 200

_STAMPED_BITS = TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT


class CompletedTransaction(NamedTuple):
    """A transaction whose marker has just been written at `last_offset`; `last_stable_offset` is the first offset of the earliest
    transaction without a marker, or the offset after this marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    is_aborted: bool


class ProducerEntry:
    """The state of one producer. It follows from the log, except for the principal and the times of writing and idleness. `batches` are the
    last batches of the current epoch, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "idle_since_ms",
        "is_touched",
        "last_timestamp",
        "next_sequence",
        "principal",
        "producer_id",
        "run_length",
        "transaction_first_offset",
        "written_ms",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_first_offset = -1
        self.batches: list[CachedBatch] = []
        self.next_sequence = 0
        self.run_length = 0  # contiguous sequences before next_sequence that are known to be appended in this epoch
        self.is_touched = True  # written to since the last sweep of `expire`
        self.idle_since_ms = -1
        # Only in the leader's memory: the principal of the client, and when this leader last received a batch from it.
        self.principal = UNKNOWN_PRINCIPAL
        self.written_ms = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def row(self, next_sweep_ms: int) -> ProducerRow:
        """Returns the producer's row in a snapshot. The idle time of a producer begins at the first sweep (`expire`) after its last write.
        If that sweep has not run yet, the row has its expected time. A restart therefore does not delay its expiry. Before the second sweep
        that time is unknown (-1), and the idle time begins with the first sweep after the restart.
        """
        return ProducerRow(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.transaction_first_offset,
            self.run_length,
            next_sweep_ms if self.is_touched else self.idle_since_ms,
            tuple(self.batches),
        )

    def start_epoch(self, epoch: int) -> None:
        """Starts a new epoch. Its sequences begin at 0."""
        self.epoch = epoch
        self.batches.clear()
        self.next_sequence = 0
        self.run_length = 0

    def find_duplicate(self, header: BatchHeader) -> CachedBatch | None:
        """Returns the cached batch with exactly these sequences, or None. Raises `ApiError` if its bytes differ."""
        first, last = header.base_sequence, header.last_sequence
        for batch in reversed(self.batches):
            if batch.first_sequence == first and batch.last_sequence == last:
                _refuse_other_bytes(header, batch)
                return batch
        return None

    def is_older_than_cache(self, header: BatchHeader) -> bool:
        """Whether the whole batch precedes the cached sequences of this epoch."""
        behind = (self.next_sequence - header.base_sequence) & SEQUENCE_MASK
        if not self.batches or behind > self.run_length or behind > _RUN_COMPARABLE_MAX:
            return False
        cached = (self.next_sequence - self.batches[0].first_sequence) & SEQUENCE_MASK
        return behind - header.last_offset_delta - 1 >= cached


class SavedProducers:
    """A snapshot that is made in steps. A producer is saved by one of the steps, or earlier, just before a batch changes it. The snapshot
    therefore shows the state at the beginning, except for idle times.
    """

    def __init__(self, pending: dict[int, ProducerEntry], completed: Iterable[tuple[int, int]], next_sweep_ms: int) -> None:
        self._pending = pending
        self._completed = tuple(completed)
        self._next_sweep_ms = next_sweep_ms
        self._encoder = SnapshotEncoder()

    def save(self, producer_id: int) -> None:
        entry = self._pending.pop(producer_id, None)
        if entry is not None:
            self._encoder.add(entry.row(self._next_sweep_ms))

    def in_steps(self) -> Iterator[None]:
        """Saves the producers that are not saved yet."""
        for piece in pieces_of(self._pending, PRODUCERS_PER_STEP):
            for producer_id in piece:
                self.save(producer_id)
            yield

    def pieces(self) -> Iterator[bytes]:
        """The body of the snapshot's file."""
        return self._encoder.pieces(self._completed)


class ProducerStates:
    """All producers of one partition."""

    __slots__ = (
        "_entries", "_next_sweep_ms", "_open", "_saving", "_swept_ms", "completed", "first_unstable_offset", "map_end_offset",
        "topic_partition",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.map_end_offset = 0  # the state covers the log below this offset
        self._entries: dict[int, ProducerEntry] = {}
        # Producer id -> first offset. Transactions begin in the order of offsets, so the first item is the earliest.
        self._open: dict[int, int] = {}
        self.completed: list[tuple[int, int]] = []  # (first offset, marker's offset) until the marker is below the high watermark
        self.first_unstable_offset: int | None = None
        """The first offset of the earliest transaction that is open or has a marker that is not below the high watermark."""
        self._swept_ms = -1  # the last sweep of `expire`
        self._next_sweep_ms = -1  # expected time of the next sweep, -1 before the second sweep
        self._saving: SavedProducers | None = None  # a snapshot that is being made in steps

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def active(self) -> Iterator[ProducerEntry]:
        """Iterates over all known producers, in the order of their first batches or, after a restore, of the snapshot's rows."""
        return iter(self._entries.values())

    # Judging, before an append

    def check(self, header: BatchHeader, *, is_client: bool = True, transaction_version: int = 0) -> CachedBatch | None:
        """Checks a batch before a leader appends it. Returns None if it may be appended, the earlier batch if it is a duplicate; raises
        `ApiError` otherwise. Unless `is_client`, sequences are not compared.

        A producer without state may start at any sequence, because its earlier batches may have been deleted. A transaction of version 2
        has its own epoch, so its first batch must have sequence 0. Any other sequence is refused, because an earlier batch has not arrived
        yet.
        """
        entry = self._entries.get(header[9])
        if entry is None:
            if transaction_version >= 2 and header[11] > 0 and header.is_transactional:
                raise self._out_of_order(header, "the first of its transaction here must be 0")
            return None
        epoch = entry.epoch
        if header[10] == epoch and (header[11] == entry.next_sequence or not is_client):
            if entry.transaction_first_offset >= 0 and not header[5] & TRANSACTIONAL_BIT:
                raise ApiError(ErrorCode.INVALID_TXN_STATE, f"{self._who(header)} has a transaction open and wrote outside of it")
            return None
        if header[10] == epoch:
            return self._judge_sequence(header, entry, transaction_version)
        if header[10] < epoch:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{self._who(header)} was fenced by epoch {epoch}")
        if is_client and header[11] != 0:
            raise self._out_of_order(header, f"the first of a new epoch must be 0, epoch {epoch} was the last")
        if entry.transaction_first_offset >= 0 and not header[5] & TRANSACTIONAL_BIT:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"{self._who(header)} has a transaction open and wrote outside of it")
        return None

    def _judge_sequence(self, header: BatchHeader, entry: ProducerEntry, transaction_version: int) -> CachedBatch | None:
        """Checks a batch of the current epoch that does not have the next sequence. Returns the cached batch that it repeats; raises
        `ApiError` if there is none.
        """
        duplicate = entry.find_duplicate(header)
        if duplicate is not None:
            return duplicate
        if entry.is_older_than_cache(header):
            message = f"{self._who(header)}: sequence {header.base_sequence} was appended before the last {len(entry.batches)} batches"
            raise ApiError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, message)
        if transaction_version >= 2 and not entry.batches:
            raise self._out_of_order(header, "the first of its transaction here must be 0")
        raise self._out_of_order(header, f"{entry.next_sequence} is next")

    def count_appended(self, producer_id: int, producer_epoch: int, base_sequence: int, count: int) -> int:
        """Returns how many of the `count` sequences from `base_sequence` on were certainly appended in this epoch. They are the first ones
        of the range.
        """
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != producer_epoch:
            return 0
        behind = (entry.next_sequence - base_sequence) & SEQUENCE_MASK
        if behind > entry.run_length or behind > _RUN_COMPARABLE_MAX:
            return 0
        return min(behind, count)

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> bool:
        """Returns whether this marker repeats the last one in the log and need not be appended. Raises `ApiError` for a fenced producer or
        coordinator.

        A marker of a newer coordinator epoch is appended also if it repeats the decision, because the log must have that epoch.

        In version 2 each transaction's marker carries a new epoch. A marker with the current epoch is therefore a repetition. If the
        producer already has its next transaction open in this epoch, a late marker must not end it, and is refused (KAFKA-17754,
        KAFKA-19999).
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return False
        is_same_epoch = producer_epoch == entry.epoch
        is_open = entry.transaction_first_offset >= 0
        if producer_epoch < entry.epoch or (transaction_version >= 2 and is_same_epoch and is_open):
            message = f"marker of producer {producer_id} epoch {producer_epoch} in {self.topic_partition}, epoch {entry.epoch} is current"
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        if coordinator_epoch < entry.coordinator_epoch:
            message = f"marker of coordinator epoch {coordinator_epoch} in {self.topic_partition}, {entry.coordinator_epoch} is current"
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
        return is_same_epoch and not is_open and coordinator_epoch == entry.coordinator_epoch

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == producer_epoch

    # Following the log

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """Updates the state for a data batch with a producer id at `base_offset`."""
        producer_id, epoch, first_sequence, delta = header[9], header[10], header[11], header[6]
        if self._saving is not None:
            self._saving.save(producer_id)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.start_epoch(epoch)
        last_sequence = (first_sequence + delta) & SEQUENCE_MASK if first_sequence >= 0 else -1
        attributes = header[5]
        is_rewritten = attributes & _STAMPED_BITS or header[12] != delta + 1
        fingerprint = -1 if is_rewritten else header[4] << 3 | attributes & CODEC_MASK
        last_offset = base_offset + delta
        timestamp = header[8]
        batches = entry.batches
        batches.append(CachedBatch(first_sequence, last_sequence, base_offset, last_offset, timestamp, fingerprint))
        if len(batches) > CACHED_BATCHES_MAX:
            del batches[0]
        entry.run_length = entry.run_length + delta + 1 if first_sequence == entry.next_sequence else delta + 1
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        entry.last_timestamp = timestamp
        entry.is_touched = True
        self.map_end_offset = last_offset + 1
        if attributes & TRANSACTIONAL_BIT and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = base_offset
            self._open[producer_id] = base_offset
            if self.first_unstable_offset is None:
                self.first_unstable_offset = base_offset

    def apply_marker(self, header: BatchHeader, base_offset: int, control_type: int, coordinator_epoch: int) -> CompletedTransaction | None:
        """Updates the state for a marker at `base_offset`. Returns the transaction that it ends, or None if the producer has no
        open transaction here."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if self._saving is not None:
            self._saving.save(producer_id)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.start_epoch(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        entry.is_touched = True
        self.map_end_offset = base_offset + 1
        first_offset = entry.transaction_first_offset
        if first_offset < 0:
            return None
        entry.transaction_first_offset = -1
        del self._open[producer_id]
        self.completed.append((first_offset, base_offset))
        last_stable_offset = next(iter(self._open.values()), base_offset + 1)
        return CompletedTransaction(producer_id, first_offset, base_offset, last_stable_offset, control_type == CONTROL_ABORT)

    # The last stable offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drops completed transactions with a marker below the high watermark. They no longer bound the last stable offset."""
        if self.completed:
            self.completed = [pair for pair in self.completed if pair[1] >= high_watermark]
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open.values()), None)
        for completed_first, _ in self.completed:
            if first is None or completed_first < first:
                first = completed_first
        self.first_unstable_offset = first

    def truncate_head(self, log_start_offset: int) -> None:
        """Notes that the log now starts here. Producers stay known, so that retries of deleted batches are still recognised (I20)."""
        if self.completed:
            self.completed = [pair for pair in self.completed if pair[1] >= log_start_offset]
            self._find_first_unstable()
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    # Expiry

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Removes producers that have written nothing for `expiration_ms` of the broker's time. Returns how many it removed.

        `now_ms` is wall time that does not jump (`SlewedClock`), so idle time continues over restarts and on another machine. It begins
        with the first sweep after the producer's last write. Timestamps of records are not used, because clients set them and they may be
        years off. A marker ends the idle time like a batch (KAFKA-9144). A producer with an open transaction is never removed.
        """
        if 0 <= self._swept_ms <= now_ms:
            self._next_sweep_ms = 2 * now_ms - self._swept_ms
        self._swept_ms = now_ms
        expired = []
        for entry in self._entries.values():
            if entry.is_touched or entry.idle_since_ms > now_ms:  # `idle_since_ms` was set by a clock that was ahead
                entry.is_touched = False
                entry.idle_since_ms = now_ms
            elif now_ms - entry.idle_since_ms >= expiration_ms and entry.transaction_first_offset < 0:
                expired.append(entry.producer_id)
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def forget(self, entry: ProducerEntry) -> bool:
        """Removes a producer, if it is still stored and has no open transaction. Returns whether the producer was removed."""
        if entry.transaction_first_offset >= 0 or self._entries.get(entry.producer_id) is not entry:
            return False
        del self._entries[entry.producer_id]
        return True

    def clear(self) -> None:
        self._saving = None
        self._entries.clear()
        self._open.clear()
        self.completed.clear()
        self.first_unstable_offset = None
        self.map_end_offset = 0

    # Snapshots

    def snapshot(self) -> bytes:
        """Returns the whole state as the content of a snapshot file."""
        return encode_snapshot((entry.row(self._next_sweep_ms) for entry in self._entries.values()), self.completed)

    def begin_saving(self) -> SavedProducers:
        """Begins a snapshot of the current state, which is made in steps. Batches may be applied between the steps. Only one such snapshot
        is made at a time.
        """
        self._saving = SavedProducers(dict(self._entries), self.completed, self._next_sweep_ms)
        return self._saving

    def is_saving(self, saving: SavedProducers) -> bool:
        """Whether `saving` is still valid. It is invalid once the state was cleared or restored, for example by a truncation."""
        return self._saving is saving

    def end_saving(self, saving: SavedProducers) -> None:
        if self._saving is saving:
            self._saving = None

    def restore(self, data: bytes) -> None:
        """Replaces the state by a snapshot. Raises `StorageError` if the snapshot is damaged."""
        rows, completed = decode_snapshot(data, str(self.topic_partition))
        self.clear()
        for row in rows:
            self._entries[row.producer_id] = _entry_of(row)
        self.completed = list(completed)
        self._open = _open_transactions(rows)
        self._find_first_unstable()

    # Refusals

    def _who(self, header: BatchHeader) -> str:
        return f"producer {header.producer_id} epoch {header.producer_epoch} in {self.topic_partition}"

    def _out_of_order(self, header: BatchHeader, why: str) -> ApiError:
        return ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{self._who(header)} sent sequence {header.base_sequence}: {why}")


def _refuse_other_bytes(header: BatchHeader, batch: CachedBatch) -> None:
    fingerprint = batch.fingerprint
    if fingerprint >= 0 and fingerprint & CODEC_MASK == header.codec and fingerprint >> 3 != header.crc:
        message = f"producer {header.producer_id} sent sequence {header.base_sequence} again, not the bytes of offset {batch.base_offset}"
        raise ApiError(ErrorCode.INVALID_RECORD, message)


def _entry_of(row: ProducerRow) -> ProducerEntry:
    entry = ProducerEntry(row.producer_id, row.epoch)
    entry.coordinator_epoch = row.coordinator_epoch
    entry.last_timestamp = row.last_timestamp
    entry.transaction_first_offset = row.transaction_first_offset
    entry.batches = list(row.batches[-CACHED_BATCHES_MAX:])
    entry.run_length = row.run_length
    entry.next_sequence = (entry.last_sequence + 1) & SEQUENCE_MASK
    entry.is_touched = row.idle_since_ms < 0
    entry.idle_since_ms = row.idle_since_ms
    return entry


def _open_transactions(rows: Iterable[ProducerRow]) -> dict[int, int]:
    """Returns the first offset of each open transaction by producer id, in the order of offsets."""
    opened = [(row.transaction_first_offset, row.producer_id) for row in rows if row.transaction_first_offset >= 0]
    return {producer_id: first_offset for first_offset, producer_id in sorted(opened)}
