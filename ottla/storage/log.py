"""One partition's log: append, read, truncate, roll, and the end of the part that is synced to disk.

A log is a sequence of segments; the last one takes appends. Batches are opaque: an append stamps base offset and leader epoch into the
client's bytes and writes them with one call, a read returns a slice of a file. The cost of both hardly depends on the length of the log:
the active segment remembers its last batches, and older ones are found by bisection and, usually, one read of the file. All records below
`recovery_point` are durable. A group commit takes `log_end_offset` and `unflushed_files()`, syncs the files in a thread, and calls
`mark_flushed` on the loop (`durability.py`).

Invariants: recovery point <= log end, offsets strictly increase (I1), leader epochs of batches never decrease (I16). A failed write changes
nothing: its bytes are cut, or the log is broken and refuses appends until it is opened again (I44).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from struct import Struct

from ottla.base.errors import ApiError, DamagedLogError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.ports import Disk
from ottla.base.types import TopicPartition
from ottla.storage import clean_close, recovery_aids, retention, small_files, timestamps
from ottla.storage.aborted import AbortedTransactions, overlapping
from ottla.storage.durability import Durability
from ottla.storage.file_renames import deleted_directory, retire_files, swap_files
from ottla.storage.file_slice import FileSlice, Syncable
from ottla.storage.following import ANY_EPOCH, judge_followed
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.ledger import DETACHED, NO_PROOF, START, SYNCED, Proof
from ottla.storage.open_files import OpenFiles
from ottla.storage.producers import CompletedTransaction
from ottla.storage.recovery import Opening, open_log
from ottla.storage.segment import LOG_SUFFIX, Segment
from ottla.storage.snapshots import aborted_entry, aborted_of, apply_batch, replay
from ottla.storage.time_search import Found, TimeSearch
from ottla.wire.batch_header import BATCH_OVERHEAD, CONTROL_BIT, LOG_OVERHEAD, BatchHeader, read_batch_header
from ottla.wire.record_times import largest_time

_STAMP = Struct(">qii")  # base offset, batch length, leader epoch: the first 16 bytes


class Log:
    """See the module. `Log.open` creates it."""

    __slots__ = (
        "_bases", "_now_ms", "_open_files", "active", "compacted_end", "config", "directory", "disk", "durability", "epochs",
        "flush_offset", "is_broken", "known_damage", "log_end_offset", "log_start_offset", "named_future", "on_cut", "producers",
        "recovery_notes", "row", "segments", "snapshots", "topic_id", "topic_partition",
    )

    def __init__(self, opening: Opening) -> None:
        self.disk, self.directory = opening.disk, opening.directory
        self.topic_partition = opening.topic_partition
        self.config = opening.config
        self.topic_id = opening.topic_id
        self.segments = opening.segments
        self.active = opening.segments[-1]
        self.epochs, self.producers, self.snapshots = opening.epochs, opening.producers, opening.snapshots
        self.log_start_offset, self.log_end_offset = opening.log_start_offset, opening.log_end_offset
        self.compacted_end = opening.compacted_end  # up to here a segment may end before the next one begins
        self.durability = Durability(opening.disk, opening.recovery_point, is_name_unsynced=opening.is_new or not opening.was_clean)
        self.recovery_notes, self.known_damage, self.is_broken = opening.notes, opening.known_damage, False
        self.named_future: retention.FutureSegment | None = None  # the segment with a future timestamp that was logged last
        self.row = DETACHED
        self.on_cut: Callable[[int], object] | None = None  # called with an offset before the log is cut there
        self._bases = [segment.base_offset for segment in opening.segments]
        self._open_files, self._now_ms = opening.open_files, opening.now_ms
        self._plan_flush()

    @classmethod
    def open(
        cls, disk: Disk, directory: str, topic_partition: TopicPartition, config: LogConfig, *, now_ms: int, was_clean: bool,
        recovery_point: int = 0, log_start_offset: int = 0, clean_offset: int = 0, is_sync_doubtful: bool = False,
        topic_id: bytes | None = None, open_files: OpenFiles | None = None, notes: list[str] | None = None,
        proof: Proof = NO_PROOF, is_replaceable: bool = False,
    ) -> Log:  # fmt: skip
        """Opens the log in `directory`, or creates it. Raises `StorageError` if the log is damaged or belongs to another topic id.
        `is_replaceable`: damage is cut off, because another replica has the records or an operator accepts their loss."""
        opening = Opening(
            disk=disk, directory=directory, topic_partition=topic_partition, config=config, now_ms=now_ms, was_clean=was_clean,
            recovery_point=recovery_point, log_start_offset=log_start_offset, clean_offset=clean_offset,
            is_sync_doubtful=is_sync_doubtful, topic_id=topic_id, open_files=open_files or OpenFiles(),
            notes=[] if notes is None else notes, proof=proof, is_replaceable=is_replaceable,
        )  # fmt: skip
        if not disk.exists(directory):
            disk.makedirs(directory)
            opening.is_new = True
        open_log(opening)
        log = cls(opening)
        if opening.is_new or not opening.was_clean:  # the files there may never have been synced
            log.durability.note(f"{directory}/{small_files.PARTITION_METADATA_FILE}")
            if opening.has_epoch_file or log.epochs.epochs:
                log._write_epochs()
        return log

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._plan_flush()
        for segment in self.segments:
            segment.configure(config)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Appending

    def append(self, batch: memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int) -> int:
        """Stamps and writes a leader's validated batch. Returns its base offset. `header` is not stamped yet. Raises `StorageError`."""
        base_offset = self.log_end_offset
        last_offset = base_offset + header[6]
        size, max_timestamp, row = header[1] + LOG_OVERHEAD, header[8], self.row
        segment = self.active
        if segment.size + size > segment.bytes_max or max_timestamp > segment.roll_timestamp or last_offset > segment.roll_offset:
            segment = self._maybe_roll(base_offset, last_offset, size, max_timestamp, now_ms)
        _STAMP.pack_into(batch, 0, base_offset, header[1], leader_epoch)
        try:
            (segment.write or segment.file().pwrite)(batch, segment.size)
        except StorageError:
            self._cut_failed_append()
            raise
        segment.note_batch(size, last_offset, max_timestamp)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
            row.note_epoch(leader_epoch)
        self.log_end_offset = row.cells[row.at] = last_offset + 1
        if header[9] >= 0:
            self._apply_to_producers(batch, header, base_offset)
        return base_offset

    def append_as_follower(self, batches: memoryview, epoch_max: int = ANY_EPOCH) -> None:
        """Appends the leader's batches unchanged; `epoch_max` is its epoch. Raises `ApiError` and `WireError` before any append
        (`following.py`), and `StorageError`."""
        begin = self.log_end_offset
        if self.log_start_offset == begin and len(batches) >= BATCH_OVERHEAD:
            first = read_batch_header(batches)
            if first.base_offset < begin <= first.last_offset:  # the leader's log starts within a batch
                begin = first.base_offset
        headers = judge_followed(self.topic_partition, batches, next_offset=begin, epoch=self.epochs.latest, epoch_max=epoch_max)
        if headers and begin < self.log_end_offset:
            self.truncate_fully_and_start_at(begin, log_start_offset=self.log_end_offset)
        start = end = 0
        run: list[BatchHeader] = []
        for position, header in headers:
            segment, end, last_offset, timestamp = self.active, position + header[1] + LOG_OVERHEAD, header[0] + header[6], header[8]
            if timestamp < header[7] and not header.is_largest_time_credible:
                timestamp = largest_time(header, batches[position:end], self.config.decompressed_bytes_max)
                header = header._replace(max_timestamp=timestamp)
            if segment.size + end - start > segment.bytes_max or timestamp > segment.roll_timestamp or last_offset > segment.roll_offset:
                self._write_run(batches[start:position], run)
                start, run = position, []
                # Behind a gap that compaction left, the segment begins where the last one ends, if it can: other gaps are damage.
                is_near = last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
                base_offset = self.log_end_offset if is_near else header.base_offset
                self._maybe_roll(base_offset, last_offset, end - position, timestamp, self._now_ms)
            run.append(header)
        self._write_run(batches[start:end], run)

    def _write_run(self, data: memoryview, run: list[BatchHeader]) -> None:
        if not run:
            return
        segment = self.active
        position = segment.size
        try:
            (segment.write or segment.file().pwrite)(data, position)
        except StorageError:
            self._cut_failed_append()
            raise
        at, row = 0, self.row
        for header in run:
            size, last_offset = header[1] + LOG_OVERHEAD, header[0] + header[6]
            segment.note_batch(size, last_offset, header[8])
            self.log_end_offset = last_offset + 1
            if header[2] != self.epochs.latest:
                self.epochs.assign(header[2], header[0])
                row.note_epoch(self.epochs.latest)
            if header[9] >= 0:
                self._apply_to_producers(data[at : at + size], header, header[0])
            at += size
        row.cells[row.at] = self.log_end_offset

    def _apply_to_producers(self, batch: memoryview, header: BatchHeader, base_offset: int) -> None:
        if not header[5] & CONTROL_BIT:
            self.producers.apply(header, base_offset)
            return
        ended = apply_batch(self.producers, header._replace(base_offset=base_offset), batch)
        if ended is not None:
            self._note_aborted(ended)

    def _note_aborted(self, ended: CompletedTransaction) -> None:
        entry = aborted_entry(ended)
        if entry is not None:
            self.durability.note(self.active.add_aborted(entry))

    def _cut_failed_append(self) -> None:
        """Cuts the file to its size before a failed write. If that fails too, the log is broken, and only recovery can find its end."""
        try:
            self.active.file().truncate(self.active.size)
        except StorageError:
            self._break()

    def _break(self) -> None:
        self.is_broken = True
        self.active.bytes_max = -1  # the next append calls `_maybe_roll`, which refuses it

    # Rolling

    def _maybe_roll(self, base_offset: int, last_offset: int, size: int, max_timestamp: int, now_ms: int) -> Segment:
        if self.is_broken:
            raise StorageError(f"{self.directory} is broken by an earlier failed write; open it again", self.directory)
        self._now_ms = now_ms
        if self.active.should_roll(size, last_offset, max_timestamp, now_ms):
            self.roll(base_offset)
        return self.active

    def roll(self, base_offset: int | None = None) -> None:
        """Begins a new segment at `base_offset` (or the log's end), unless one begins there. A failure may break the log."""
        base = self.log_end_offset if base_offset is None else base_offset
        if base == self.active.base_offset:
            return
        self.durability.name(self.segments[0], self.directory)
        segment = self._new_segment(base)
        try:
            segment.open_file(create=True)
            self.snapshots.write_at_roll(base, self.producers)
            self.active.seal(base)
        except StorageError:
            self._abandon(segment)
            raise
        self.durability.note(self.active.index.path, self.active.times.path)
        self.snapshots.remove_strays((*self._bases, base))
        self.segments.append(segment)
        self._bases.append(base)
        self.active = segment

    def _new_segment(self, base: int) -> Segment:
        return Segment(
            self.disk, self.directory, base, config=self.config, now_ms=self._now_ms, open_files=self._open_files, notes=self.recovery_notes
        )

    def _abandon(self, segment: Segment) -> None:
        try:
            segment.remove()
        except StorageError:
            self._break()

    # Reading

    def read(self, offset: int, bytes_max: int, *, end_offset: int, min_one: bool = True) -> FileSlice | None:
        """Returns a segment's batches, from the batch that holds `offset` up to `end_offset`, or None. Raises `ApiError`, `StorageError`.

        The last batch may be cut off at `bytes_max`. The first batch is whole: if it is larger than `bytes_max`, it is returned alone, or
        not at all without `min_one`.
        """
        segment, latest = self.active, self._open_files.latest
        if (
            latest is not None and offset == latest.base_offset and latest.shared is segment.shared and end_offset == self.log_end_offset
            and latest.position + latest.length == segment.size and latest.length <= bytes_max and offset >= self.log_start_offset
        ):  # fmt: skip
            return latest
        if offset < self.log_start_offset or offset > self.log_end_offset:
            message = f"{self.topic_partition} has offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset >= end_offset:
            return None
        number = len(self.segments) - 1
        if offset < segment.base_offset:
            number = bisect_right(self._bases, offset) - 1
            segment = self.segments[number]
        start = segment.position_of(offset)
        while True:
            end = segment.size
            if end_offset < (segment.end_offset if segment.end_offset >= 0 else self.log_end_offset):
                end = segment.position_of(end_offset)
            if start < end:
                break
            if self.compacted_end < segment.end_offset <= end_offset:
                raise DamagedLogError(f"{segment.path(LOG_SUFFIX)} ends before offset {offset}", segment.path(LOG_SUFFIX))
            number += 1
            if number >= len(self.segments):
                return None
            segment, start = self.segments[number], 0
        length = end - start
        if length > bytes_max:
            length = max(bytes_max, 0)
            first = segment.batch_size_at(start)
            if first > length:
                if not min_one:
                    return None
                length = first
        if segment.open_files.is_crowded:
            return segment.slice(start, length)
        return FileSlice(segment.shared or segment.open_file(), start, length)

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Returns (producer id, first offset) of every aborted transaction that overlaps [first_offset, end_offset)."""
        first = max(0, bisect_right(self._bases, first_offset) - 1)
        return overlapping(self.segments, first, first_offset, end_offset, self.aborted_of)

    def aborted_of(self, segment: Segment) -> AbortedTransactions:
        """Returns the transactions with an abort marker in this segment. Rebuilds a damaged index."""
        return aborted_of(segment, self.topic_partition, self.snapshots, self.segments, self.log_end_offset, self.recovery_notes)

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int, search: TimeSearch | None = None) -> Found | None:
        """Returns the first record that is not older than the timestamp. Raises `SearchPaused` at a limit of `search`."""
        end, bytes_max = min(end_offset, self.log_end_offset), self.config.decompressed_bytes_max
        return timestamps.first_at_or_after(self.segments, timestamp_ms, self.log_start_offset, end, bytes_max, search)

    def max_timestamp_offset(self, search: TimeSearch | None = None) -> Found | None:
        """Returns the first record with the largest timestamp. Raises `SearchPaused`."""
        return timestamps.newest(self.segments, self.log_start_offset, self.log_end_offset, self.config.decompressed_bytes_max, search)

    # Durability

    @property
    def recovery_point(self) -> int:
        """All records below this offset are synced."""
        return self.durability.recovery_point

    def unflushed_files(self) -> list[Syncable]:
        """Returns the files to sync, in order, to make all records durable. The caller then calls `mark_flushed` with the present end."""
        if self.epochs.is_dirty:
            self._write_epochs()
        return self.durability.unsynced(self.directory, self.segments, self.log_end_offset)

    def mark_flushed(self, offset: int) -> None:
        """Raises the recovery point to `offset`, the log's end when `unflushed_files` returned the files that are now synced."""
        self.durability.mark(offset, self.segments)
        self.row.cells[self.row.at + SYNCED] = self.recovery_point
        self._plan_flush()

    def _plan_flush(self) -> None:
        """Sets the end offset at which `flush.messages` demands the next flush."""
        self.flush_offset = self.recovery_point + min(self.config.flush_messages, 1 << 62)

    def _write_epochs(self) -> None:
        self.epochs.write(self.disk, self.directory, is_durable=False)
        self.durability.note(f"{self.directory}/{small_files.LEADER_EPOCH_FILE}")

    def flush(self) -> None:
        """Makes all records durable before it returns. Also writes the indexes, without a sync."""
        end = self.log_end_offset
        self.active.write_indexes()
        for file in self.unflushed_files():
            file.sync()
        self.mark_flushed(end)

    def write_recovery_aids(self, unaided_bytes_max: int = recovery_aids.UNAIDED_BYTES_MAX) -> None:
        """Writes the files that speed up a later recovery, if more than `unaided_bytes_max` bytes lack them (`recovery_aids.py`)."""
        recovery_aids.write(self, unaided_bytes_max)

    # Cutting the end

    def truncate_to(self, offset: int) -> None:
        """Removes, durably, the batch that holds `offset` and all later batches."""
        if offset >= self.log_end_offset:
            return
        if offset <= self._bases[0] or offset < self.log_start_offset:
            self.truncate_fully_and_start_at(max(offset, 0))
            return
        if self.on_cut is not None:
            self.on_cut(offset)
        self.row.clear()
        self.durability.cut(offset, self.directory)
        self.snapshots.remove_above(offset)
        self._remove_from(bisect_right(self._bases, offset))
        end_offset = self.active.truncate_to(offset)
        if end_offset < self.log_start_offset:  # the log start was within the batch that was cut
            self.truncate_fully_and_start_at(offset)
            return
        self.log_end_offset = end_offset
        self.active.cut_aborted(self.log_end_offset)
        self._after_cut()

    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None) -> None:
        """Removes all records. The log begins at `offset`, for readers at `log_start_offset` within the first batch if that is given."""
        if self.on_cut is not None:
            self.on_cut(self._bases[0])
        self.row.clear()
        self.durability.restart(offset, self.directory)
        self.snapshots.remove_above(-1)
        self._remove_from(0)
        self.active = self._new_segment(offset)
        self.active.open_file(create=True)
        self.segments.append(self.active)
        self._bases.append(offset)
        self.log_end_offset = offset
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.epochs.clear()
        self._after_cut()

    def _remove_from(self, keep: int) -> None:
        """Removes the segments from number `keep` on durably, the newest first, so that a kill makes no gap between segments."""
        for segment in reversed(self.segments[keep:]):
            segment.remove()
        if keep < len(self.segments):
            self.disk.sync_directory(self.directory)
        del self.segments[keep:], self._bases[keep:]
        if self.segments:
            self.active = self.segments[-1]
            self.active.unseal()

    def _after_cut(self) -> None:
        end = self.log_end_offset
        self.durability.cut(end, self.directory)
        self._plan_flush()
        self.snapshots.remove_above(end)
        self.epochs.truncate_end(end)
        self.epochs.write(self.disk, self.directory, is_durable=True)
        self.row.enter(end, self.recovery_point, self.log_start_offset, self.epochs.latest)
        restored = self.snapshots.restore(self.producers, end, self.recovery_notes)
        replay(self.producers, self.segments, self._bases[0] if restored is None else restored, end)
        self.producers.truncate_head(self.log_start_offset)

    # Cutting the head

    def advance_log_start(self, offset: int) -> None:
        """Raises the log start (DeleteRecords): records below `offset` are not served any more. `delete_expired` removes segments."""
        assert offset <= self.log_end_offset, f"{self.topic_partition}: log start {offset} beyond the end {self.log_end_offset}"
        if offset > self.log_start_offset:
            self.log_start_offset = self.row.cells[self.row.at + START] = offset
            self.epochs.truncate_head(offset)
            self.producers.truncate_head(offset)

    def delete_expired(self, now_ms: int, high_watermark: int) -> list[str]:
        """Removes expired segments. Returns the paths of their files, which the caller removes after `file.delete.delay.ms`."""
        self._now_ms = now_ms
        count = retention.count_expired(
            self.segments, self.config, now_ms=now_ms, high_watermark=high_watermark,
            log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset,
        )  # fmt: skip
        count = min(count, recovery_aids.removable_count(self))
        if not count:
            return []
        if count == len(self.segments):
            self.roll()
        self.durability.name(self.segments[count], self.directory)
        self.advance_log_start(self._bases[count])
        return self._retire(0, count)

    def _retire(self, first: int, end: int) -> list[str]:
        """Removes segments from the log and renames their files. Returns the new paths, which the caller removes later."""
        retired = self.segments[first:end]
        del self.segments[first:end], self._bases[first:end]
        snapshots = [path for segment in retired for path in self.snapshots.retire(segment.base_offset)]
        return [path for segment in retired for path in retire_files(self.disk, segment)] + snapshots

    def replace_segments(self, old: Sequence[Segment], bases: Sequence[int], *, is_compacted: bool = True) -> list[str]:
        """Replaces `old`, a run of sealed segments, by the written `.cleaned` files for `bases`, the result of a compaction or a repair.
        Returns the paths of the old files, for a later removal. The first base must be the base offset of the first old segment."""
        first = self.segments.index(old[0])
        assert self.segments[first : first + len(old)] == list(old) and old[-1].is_sealed, "only a run of sealed segments can be replaced"
        assert bases[0] == old[0].base_offset and bases[-1] < old[-1].end_offset, f"replacements {bases} lie outside of the old segments"
        end_offset = old[-1].end_offset
        retired = swap_files(self.disk, self.directory, old, bases, may_have_gaps=is_compacted)
        self.compacted_end = max(self.compacted_end, end_offset if is_compacted else 0)
        made = [self._new_segment(base) for base in bases]
        for segment, end in zip(made, (*bases[1:], end_offset), strict=True):
            segment.take_files(end)
            segment.is_name_durable = True
        self.segments[first : first + len(old)] = made
        self._bases = [segment.base_offset for segment in self.segments]
        return retired + self.snapshots.retire_strays(self._bases)

    # Closing

    def close(self, *, clean: bool) -> None:
        """Closes all files. A clean close syncs the log first, so that the next opening need not recover it."""
        if not clean:
            self.release_files()
            return
        end = self.log_end_offset
        for file in clean_close.prepare(self):
            file.sync()
        clean_close.finish(self, end)

    def release_files(self) -> None:
        for segment in self.segments:
            segment.release_file()

    def delete(self) -> str:
        """Renames the directory to Kafka's `<topic>-<partition>.<unique>-delete`. Returns the new path, which the caller removes later."""
        return self.rename_to(deleted_directory(self.disk, self.directory, self.topic_id or bytes(16)))

    def rename_to(self, target: str) -> str:
        """Renames the directory; the name is not durable yet."""
        self.release_files()
        self.disk.rename(self.directory, target)
        self.directory = self.snapshots.directory = target
        for segment in self.segments:
            segment.move_to(target)
        return target

    def take_over(self, copy: Log) -> None:
        """Takes over the directory and the files of `copy`, which has the same records. Epochs, offsets and producers do not change."""
        self.directory, self.segments, self.active, self.snapshots = copy.directory, copy.segments, copy.active, copy.snapshots
        self._bases, self.durability, self.is_broken = copy._bases, copy.durability, copy.is_broken
        self._plan_flush()
