"""Writes and removes the producer snapshots of a log (`%020d.snapshot`), and restores the state at an offset from them.

A snapshot at offset N has the state after all batches below N. One is written at each roll (N is the new segment's base). A checkpoint of
the recovery point writes one if the log has grown by more than 1 MiB since the newest (`recovery_aids.py`), a clean close if it has grown
by more than 4 KiB (`clean_close.py`). A roll of a log with many producers writes none, because other clients would wait for it; the next
checkpoint writes it in steps. Snapshots at the base of a segment are kept, and the newest one. Snapshots are not synced. A torn one fails
its CRC; recovery then uses the previous one and replays more batches.

Invariant: a snapshot above a truncation point is removed before the log is cut, so every snapshot agrees with the log.

`producers.py` has the contents of a snapshot.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence

from ottla.base.errors import StorageError
from ottla.base.ports import Disk
from ottla.base.types import TopicPartition
from ottla.storage.aborted import AbortedTransaction, AbortedTransactions
from ottla.storage.file_renames import DELETED_SUFFIX
from ottla.storage.producer_snapshot import HEAD_BYTES, snapshot_head
from ottla.storage.producers import CompletedTransaction, ProducerStates
from ottla.storage.scan import DamageError
from ottla.storage.segment import LOG_SUFFIX, Segment
from ottla.storage.small_files import read_whole, write_atomically
from ottla.wire.batch_header import CONTROL_BIT, BatchHeader, check_crc
from ottla.wire.checksum import crc32c
from ottla.wire.records import CONTROL_ABORT, CONTROL_COMMIT, read_control_record

SNAPSHOT_SUFFIX = ".snapshot"
AT_ONCE_MAX = 1_000
"""Producers in a snapshot that a roll or a checkpoint writes in one call, at most. A checkpoint makes larger ones in steps."""


class ProducerSnapshots:
    """The snapshot files of one log, by offset."""

    __slots__ = ("directory", "disk", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: list[int]) -> None:
        self.disk = disk
        self.directory = directory
        self.offsets = offsets

    @property
    def newest(self) -> int:
        return self.offsets[-1] if self.offsets else -1

    def path(self, offset: int) -> str:
        return f"{self.directory}/{offset:020d}{SNAPSHOT_SUFFIX}"

    def write(self, offset: int, producers: ProducerStates) -> None:
        if offset not in self.offsets:
            write_atomically(self.disk, self.path(offset), producers.snapshot(), is_durable=False)
            insort(self.offsets, offset)

    def write_at_roll(self, offset: int, producers: ProducerStates) -> None:
        if len(producers) <= AT_ONCE_MAX:
            self.write(offset, producers)

    def write_in_steps(self, offset: int, producers: ProducerStates) -> Iterator[None]:
        """Writes the state at the first step, in steps. Writes no snapshot if the log is truncated meanwhile."""
        saving = producers.begin_saving()
        path = self.path(offset)
        temporary = path + ".tmp"
        try:
            for _ in saving.in_steps():
                yield
                if not producers.is_saving(saving):
                    return
            file = self.disk.open(temporary, create=True)
            try:
                file.truncate(0)
                at, crc = HEAD_BYTES, 0
                for piece in saving.pieces():
                    file.pwrite(piece, at)
                    at, crc = at + len(piece), crc32c(piece, crc)
                    yield
                    if not producers.is_saving(saving):
                        return
                file.pwrite(snapshot_head(crc), 0)
            finally:
                file.close()
            if offset not in self.offsets:
                self.disk.rename(temporary, path)
                insort(self.offsets, offset)
        finally:
            producers.end_saving(saving)
            self.disk.remove(temporary)

    def restore(self, producers: ProducerStates, offset_max: int, notes: list[str]) -> int | None:
        """Loads the newest valid snapshot at or below `offset_max` and returns its offset. Removes damaged ones. Returns None, with an
        empty state, if there is no valid one.
        """
        for offset in reversed(self.offsets[: bisect_right(self.offsets, offset_max)]):
            try:
                producers.restore(read_whole(self.disk, self.path(offset)) or b"")
            except StorageError as error:
                notes.append(f"{self.path(offset)}: {error}; removed")
                self.remove(offset)
                continue
            producers.map_end_offset = offset
            return offset
        producers.clear()
        return None

    def remove(self, offset: int) -> None:
        if offset in self.offsets:
            self.offsets.remove(offset)
            self.disk.remove(self.path(offset))

    def retire(self, offset: int) -> list[str]:
        """Renames the file of a snapshot, which the event loop does faster than removing it. Returns the new path, which the caller removes
        later.
        """
        if offset not in self.offsets:
            return []
        self.offsets.remove(offset)
        retired = self.path(offset) + DELETED_SUFFIX
        self.disk.rename(self.path(offset), retired)
        return [retired]

    def retire_strays(self, bases: Iterable[int]) -> list[str]:
        """Renames all snapshots except those at `bases` and the newest. Returns the new paths, which the caller removes later."""
        kept = frozenset(bases)
        return [path for offset in self.offsets[:-1] if offset not in kept for path in self.retire(offset)]

    def remove_above(self, offset: int) -> None:
        for above in self.offsets[bisect_right(self.offsets, offset) :]:
            self.remove(above)

    def remove_strays(self, bases: Iterable[int]) -> None:
        """Removes all snapshots except those at `bases` and the newest."""
        kept = frozenset(bases)
        for offset in self.offsets[:-1]:
            if offset not in kept:
                self.remove(offset)


def apply_batch(producers: ProducerStates, header: BatchHeader, batch: memoryview) -> CompletedTransaction | None:
    """Applies one batch of the log to the producers' state. Returns the transaction that it ended, or None."""
    if header.producer_id < 0:
        return None
    if not header.attributes & CONTROL_BIT:
        producers.apply(header, header.base_offset)
        return None
    control = read_control_record(batch)
    if control is None or control.kind not in (CONTROL_ABORT, CONTROL_COMMIT):
        return None
    return producers.apply_marker(header, header.base_offset, control.kind, control.coordinator_epoch)


def apply_stored_batch(
    producers: ProducerStates, path: str, position: int, header: BatchHeader, batch: memoryview
) -> CompletedTransaction | None:
    """Applies one batch that was read from the segment at `path`. Batches below the recovery point are read without a check of their CRC,
    but a marker with a flipped bit could end a transaction in the wrong way. Raises `DamageError` for a marker with a wrong CRC.
    """
    if header.is_control and not check_crc(batch, 0, len(batch)):
        message = f"{path}: the marker at {position} (offset {header.base_offset}) has a wrong CRC"
        raise DamageError(message, path, position, header.base_offset)
    return apply_batch(producers, header, batch)


def replay(producers: ProducerStates, segments: Sequence[Segment], start: int, end: int) -> list[CompletedTransaction]:
    """Applies the batches of [start, end) to the producers. Returns the transactions that ended there."""
    completed = []
    for segment in segments:
        if start >= end or segment.base_offset >= end or (segment.is_sealed and segment.end_offset <= start):
            continue
        for position, header, batch in segment.scan(segment.position_of(start)):
            if header.base_offset >= end:
                break
            if header.base_offset < start:
                continue
            ended = apply_stored_batch(producers, segment.path(LOG_SUFFIX), position, header, batch)
            if ended is not None:
                completed.append(ended)
    return completed


def aborted_entry(ended: CompletedTransaction) -> AbortedTransaction | None:
    if not ended.is_aborted:
        return None
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)


def aborted_of(
    segment: Segment,
    topic_partition: TopicPartition,
    snapshots: ProducerSnapshots,
    segments: Sequence[Segment],
    log_end_offset: int,
    notes: list[str],
) -> AbortedTransactions:
    """Returns the transactions with an abort marker in a segment. Rebuilds a damaged index."""
    try:
        return segment.aborted()
    except StorageError as error:
        notes.append(f"{topic_partition}: {error}; made it again")
    end = segment.end_offset if segment.is_sealed else log_end_offset
    entries = aborted_between(topic_partition, snapshots, segments, segment.base_offset, end, notes)
    segment.replace_aborted(entries)
    return segment.aborted()


def aborted_between(
    topic_partition: TopicPartition, snapshots: ProducerSnapshots, segments: Sequence[Segment], start: int, end: int, notes: list[str]
) -> list[AbortedTransaction]:
    """Returns the transactions with an abort marker in [start, end), found by replaying the producers."""
    producers = ProducerStates(topic_partition)
    restored = snapshots.restore(producers, start, notes)
    ended = replay(producers, segments, segments[0].base_offset if restored is None else restored, end)
    return [entry for each in ended if (entry := aborted_entry(each)) and entry.last_offset >= start]
