"""Replaces damaged segments by the batches of another replica.

The new files are written and swapped in like the files of a compaction (`.cleaned`, with indexes, synced), so after a crash at any moment
the log has the old segments or the new ones. Every batch is checked before it is written: its CRC must be right, it must begin at the end
of the last batch (only a compacted log has gaps), and its leader epoch must be this log's epoch at that offset, if that is known. The
aborted transactions are rebuilt by replaying the producers from the newest snapshot at or before the range.

A damaged log that may have been compacted is fetched from its beginning up to the end of the damaged segment. Otherwise an old value of a
key could remain here although the other replica has already removed its tombstone.

`Replacement` shares nothing with the log and runs in a thread; `plan` and `install` run on the event loop. `server/repair/segment_fetch.py`
fetches the batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import StorageError, WireError
from ottla.base.immutable import immutable
from ottla.base.log_config import LogConfig
from ottla.base.ports import Disk
from ottla.base.types import NO_LEADER_EPOCH, TopicPartition
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.log import Log
from ottla.storage.producers import ProducerStates
from ottla.storage.scan import scan_batches
from ottla.storage.segment import LOG_SUFFIX, Segment
from ottla.storage.segment_rewriter import CleanedOutput, SegmentFile, remove_cleaned
from ottla.storage.snapshots import ProducerSnapshots, aborted_entry, apply_batch
from ottla.wire.batch_header import MAGIC, BatchHeader, check_crc, iter_batches


@immutable(kw_only=True)
class RepairPlan:
    """A repair of the offsets [base_offset, end_offset) in `directory`; records are fetched from `fetch_from` on."""

    topic_partition: TopicPartition
    directory: str
    base_offset: int
    end_offset: int
    fetch_from: int
    epochs: LeaderEpochs
    """A copy of this log's epochs."""
    earlier: tuple[SegmentFile, ...]
    """The earlier segments. The producers' state is replayed from them if no snapshot has it."""
    snapshots: tuple[int, ...]
    config: LogConfig
    may_have_gaps: bool
    now_ms: int


class RefusedBatch(Exception):
    """The other replica sent bytes that cannot replace the segment. The message names them ("a damaged batch at offset 5")."""


def plan(log: Log, segment: Segment, *, now_ms: int) -> tuple[RepairPlan, list[Segment]]:
    """Returns the repair of a sealed segment of this log, and the segments that it replaces."""
    number = log.segments.index(segment)
    may_have_gaps = log.config.is_compacted or log.compacted_end > 0
    old = log.segments[: number + 1] if may_have_gaps else [segment]
    base_offset = old[0].base_offset
    earlier = log.segments[: log.segments.index(old[0])]
    made = RepairPlan(
        topic_partition=log.topic_partition,
        directory=log.directory,
        base_offset=base_offset,
        end_offset=segment.end_offset,
        fetch_from=max(base_offset, log.log_start_offset),
        epochs=LeaderEpochs(log.epochs.entries()),
        earlier=tuple(SegmentFile(base_offset=each.base_offset, end_offset=each.end_offset, size=each.size) for each in earlier),
        snapshots=tuple(offset for offset in log.snapshots.offsets if offset <= base_offset),
        config=log.config,
        may_have_gaps=may_have_gaps,
        now_ms=now_ms,
    )
    return made, old


def install(log: Log, repair: RepairPlan, old: Sequence[Segment], bases: Sequence[int]) -> list[str] | None:
    """Replaces `old` by the written segments at `bases`. Returns the paths of the old files, which the caller removes after
    `file.delete.delay.ms`. Returns None, without a change, if the log has meanwhile been moved or broken, or has lost or changed one of the
    old segments.
    """
    first = log.segments.index(old[0]) if old[0] in log.segments else len(log.segments)
    is_same = log.segments[first : first + len(old)] == list(old) and old[-1].end_offset == repair.end_offset
    if not is_same or log.is_broken or log.directory != repair.directory:
        return None
    return log.replace_segments(old, bases, is_compacted=repair.may_have_gaps)


class Replacement:
    """Writes the new segments. Every method may raise `StorageError`."""

    def __init__(self, disk: Disk, repair: RepairPlan) -> None:
        self.next_offset = repair.fetch_from
        """The offset at which the next batch must begin."""
        self.batches = 0
        self._disk = disk
        self._repair = repair
        self._producers: ProducerStates | None = None
        remove_cleaned(disk, repair.directory)
        self._output = CleanedOutput(disk, repair.directory, repair.base_offset, repair.config, repair.now_ms)

    @property
    def is_complete(self) -> bool:
        return self.next_offset >= self._repair.end_offset

    def add(self, records: bytes) -> None:
        """Checks and writes the records of a fetch from `next_offset` on. Raises `RefusedBatch`."""
        before, view = self.next_offset, memoryview(records)
        try:
            for position, header in iter_batches(records):
                if header.last_offset < self.next_offset:
                    continue
                if self.is_complete or self._is_behind(header):
                    break
                self._judge(view, position, header)
                self._write(view[position : position + header.size_bytes], header)
        except WireError as error:
            raise RefusedBatch(f"bytes that are no batches: {error}") from None
        if self.next_offset == before:
            raise RefusedBatch(f"nothing at offset {before}")

    def finish(self) -> tuple[int, ...]:
        """Makes the new files durable. Returns the base offsets of the new segments."""
        self._output.finish(self._repair.end_offset)
        self._disk.sync_directory(self._repair.directory)
        return tuple(segment.base_offset for segment in self._output.made)

    def discard(self) -> None:
        remove_cleaned(self._disk, self._repair.directory)

    def _is_behind(self, header: BatchHeader) -> bool:
        """Returns whether the log is compacted and the batch is after the range. If so, marks the range as complete: the other replica has
        no batches at the end of the range, because it has compacted them."""
        if header.base_offset < self._repair.end_offset or not self._repair.may_have_gaps:
            return False
        self.next_offset = self._repair.end_offset
        return True

    def _judge(self, view: memoryview, position: int, header: BatchHeader) -> None:
        repair, offset = self._repair, header.base_offset
        if header.magic != MAGIC or not check_crc(view, position, header.size_bytes):
            raise RefusedBatch(f"a damaged batch at offset {self.next_offset}")
        is_next = offset == self.next_offset or (self.next_offset == repair.fetch_from and offset < self.next_offset)
        if not (is_next or repair.may_have_gaps) or offset < repair.base_offset or header.next_offset > repair.end_offset:
            raise RefusedBatch(f"offsets {offset} to {header.last_offset}, expected {self.next_offset}")
        epoch = repair.epochs.epoch_at(offset)
        if epoch not in (NO_LEADER_EPOCH, header.partition_leader_epoch):
            raise RefusedBatch(f"offset {offset} of leader epoch {header.partition_leader_epoch}, here it is of epoch {epoch}")

    def _write(self, batch: memoryview, header: BatchHeader) -> None:
        self._output.write(batch, header)
        if header.producer_id >= 0:
            if self._producers is None:
                self._producers = self._restore()
            ended = apply_batch(self._producers, header, batch)
            entry = None if ended is None else aborted_entry(ended)
            if entry is not None:
                self._output.note_aborted(entry)
        self.next_offset = header.next_offset
        self.batches += 1

    def _restore(self) -> ProducerStates:
        """Returns the producers' state at the beginning of the range."""
        repair, producers = self._repair, ProducerStates(self._repair.topic_partition)
        snapshots = ProducerSnapshots(self._disk, repair.directory, list(repair.snapshots))
        start = snapshots.restore(producers, repair.base_offset, []) or 0
        for segment in repair.earlier:
            if segment.end_offset <= start:
                continue
            path = f"{repair.directory}/{segment.base_offset:020d}{LOG_SUFFIX}"
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                raise StorageError(f"{path} has vanished", path) from None
            try:
                for _, header, batch in scan_batches(file, 0, segment.size, next_offset=segment.base_offset):
                    if header.base_offset >= start:
                        apply_batch(producers, header, batch)
            finally:
                file.close()
        return producers
