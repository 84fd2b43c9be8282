"""Rewrites a run of sealed segments with only the last value of each key.

`compact` runs in a worker process: it gets a `CompactionJob` and a `Disk`, and returns a `CompactionResult`. The first pass reads the dirty
part and notes the last offset of each key. The second pass reads everything and writes `.cleaned` segments with their indexes, synced.
Records keep their offsets. Meanwhile the log is served; it changes only in `Log.replace_segments`.

Kept records (I8): the last record of each key, and all records that the first pass did not reach. Records without a key are removed. A
tombstone is kept until its delete horizon. The first round that keeps it writes the horizon into the batch (KIP-534), so that every reader
has `delete.retention.ms` to read it. Records of aborted transactions are removed at once. A marker is kept while the log has a batch of its
transaction, and then until its own delete horizon. The last five batches of each producer are kept, if necessary without records, so that
the producer's sequences can be restored from the log alone. A marker is also kept if no batch of its producer has the producer's last
epoch. The last batch of the round is kept too, because the segment must not end earlier.

`compaction_plan.py` selects the dirty part, and installs the result.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b

from ottla.base.errors import WireError
from ottla.base.immutable import immutable
from ottla.base.log_config import LogConfig
from ottla.base.ports import Disk
from ottla.storage.aborted import AbortedTransaction
from ottla.storage.file_renames import CLEANED_SUFFIX
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.open_files import OpenFiles
from ottla.storage.scan import scan_batches
from ottla.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment
from ottla.wire.record_times import largest_time
from ottla.wire.records import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    ControlRecord,
    Record,
    Retained,
    iter_records,
    read_batch_header,
    read_control_record,
    read_records,
    rewrite_batch,
    rewrite_records,
)

KEYS_MAX = 1_000_000
"""Keys in one round, at most. Each takes about 150 bytes of memory; further keys wait for the next round."""
_RAW_KEY_BYTES_MAX = 15  # such a key is stored itself, because a digest has 16 bytes
_DIGEST_BYTES = 16


@immutable(kw_only=True)
class SegmentFile:
    """A sealed segment of a job."""

    base_offset: int
    end_offset: int
    size: int


@immutable(kw_only=True)
class CompactionJob:
    """The input of the worker. `kept_batches`: (producer id, last offset) of batches that are kept, if only as headers. `kept_markers`:
    (producer id, epoch) of producers whose epoch is only in a marker. Both are flat arrays."""

    directory: str
    segments: tuple[SegmentFile, ...]
    first_dirty_offset: int
    aborted: tuple[AbortedTransaction, ...]
    kept_batches: array[int]
    kept_markers: array[int]
    now_ms: int
    config: LogConfig
    keys_max: int = KEYS_MAX


@immutable(kw_only=True)
class CompactionResult:
    """The `.cleaned` segments at `bases` replace `old`; all below `end_offset` is clean. `unread_batches` is the number of batches that
    were kept unchanged because their records cannot be read (malformed, or larger than `ottla.batch.decompressed.max.bytes`);
    `unread_reason` is the reason of the first one.
    """

    old: tuple[SegmentFile, ...]
    bases: tuple[int, ...]
    end_offset: int
    bytes_before: int
    bytes_after: int
    unread_batches: int = 0
    unread_reason: str = ""


@immutable(kw_only=True)
class Order:
    """A request to the worker process: the job, and the limit on its rate of reads and writes."""

    job: CompactionJob
    bytes_per_second: float


@immutable(kw_only=True)
class Failed:
    """A failed job, with its reason in one line."""

    reason: str


Answer = CompactionResult | Failed | None
"""None: the log has changed since the plan."""


class CleanedSegment(Segment):
    """A segment whose files are not yet part of the log."""

    __slots__ = ()

    def path(self, suffix: str) -> str:
        return f"{super().path(suffix)}{CLEANED_SUFFIX}"


def compact(disk: Disk, job: CompactionJob) -> CompactionResult | None:
    """Writes the `.cleaned` segments. Returns None if the log has meanwhile lost a segment. Raises `StorageError` for a failing disk or a
    damaged batch.
    """
    remove_cleaned(disk, job.directory)
    try:
        latest, end_offset = _note_latest(disk, job)
        old = tuple(segment for segment in job.segments if segment.base_offset < end_offset)
        output = CleanedOutput(disk, job.directory, old[0].base_offset, job.config, job.now_ms)
        rewrite = _Rewrite(job, latest, end_offset, output)
        rewrite.run(disk, old)
        output.finish(old[-1].end_offset)
        disk.sync_directory(job.directory)
    except FileNotFoundError:
        remove_cleaned(disk, job.directory)
        return None
    return CompactionResult(
        old=old,
        bases=tuple(segment.base_offset for segment in output.made),
        end_offset=end_offset,
        bytes_before=sum(segment.size for segment in old),
        bytes_after=sum(segment.size for segment in output.made),
        unread_batches=rewrite.unread_batches,
        unread_reason=rewrite.unread_reason,
    )


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Removes the files of an unfinished compaction."""
    for name in disk.listdir(directory):
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(f"{directory}/{name}")


def _batches(disk: Disk, job: CompactionJob, segment: SegmentFile) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the batches of one segment. The CRC of each is checked, because a damaged batch must not be written with a new CRC (P11)."""
    file = disk.open(f"{job.directory}/{segment.base_offset:020d}{LOG_SUFFIX}")
    try:
        for _, header, batch in scan_batches(file, 0, segment.size, next_offset=segment.base_offset, crc_from=0):
            yield header, batch
    finally:
        file.close()


# The first pass


def short_key(key: bytes) -> bytes:
    """Returns the key of the map for a record's key: a short key itself, else a digest."""
    return key if len(key) <= _RAW_KEY_BYTES_MAX else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _note_latest(disk: Disk, job: CompactionJob) -> tuple[dict[bytes, int], int]:
    """Returns the last offset of each key of the dirty part, and the end offset of the batches that were read."""
    latest: dict[bytes, int] = {}
    first_dirty = job.first_dirty_offset
    transactions = CleanedTransactions(entry for entry in job.aborted if entry.last_offset >= first_dirty)
    for segment in job.segments:
        if segment.end_offset <= first_dirty:
            continue
        for header, batch in _batches(disk, job, segment):
            if header.last_offset < first_dirty:
                continue
            if header.is_control:
                transactions.end(header, _read_control(batch))
                continue
            if transactions.is_aborted(header):
                continue
            end_offset = _note_keys(job, batch, latest)
            if end_offset is not None:
                return latest, end_offset
    return latest, job.segments[-1].end_offset


def _note_keys(job: CompactionJob, batch: memoryview, latest: dict[bytes, int]) -> int | None:
    """Notes the keys of one batch. Returns the offset at which the map was full, or None. A batch that does not fit is left to the next
    round. If it does not even fit an empty map, the round ends within the batch.
    """
    first_dirty, keys_left = job.first_dirty_offset, job.keys_max - len(latest)
    noted: dict[bytes, int] = {}
    try:
        for record in iter_records(batch, decompressed_bytes_max=job.config.decompressed_bytes_max):
            if record.key is None or record.offset < first_dirty:
                continue
            key = short_key(record.key)
            if key not in latest and key not in noted:
                if len(noted) >= keys_left and latest:
                    return read_batch_header(batch).base_offset
                if len(noted) >= keys_left:
                    latest.update(noted)
                    return record.offset
            noted[key] = record.offset
    except WireError:
        return None  # the batch is kept unchanged, so none of its records replaces an earlier one
    latest.update(noted)
    return None


def _read_control(batch: memoryview) -> ControlRecord | None:
    try:
        return read_control_record(batch)
    except WireError:
        return ControlRecord(-1, -1)  # an unknown kind of marker, which is kept


class CleanedTransactions:
    """Finds the batches of aborted transactions, and the markers whose transactions have no batches left. Called in log order."""

    def __init__(self, aborted: Iterator[AbortedTransaction]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}  # begun and not yet ended, by producer
        self._with_data: dict[int, None] = {}  # producers with a batch, perhaps an empty one, in their open transaction

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        self._begin(header.last_offset)
        self._with_data[header.producer_id] = None
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader, control: ControlRecord | None) -> tuple[bool, AbortedTransaction | None]:
        """Ends a transaction. The first result is whether its marker is needless: the log has no batch of the transaction any more, not
        even an empty one, or an earlier compaction has removed the marker's record. The second result is the transaction's entry for the
        aborted index, if it was aborted and its marker is needed.
        """
        self._begin(header.last_offset)
        if control is None:
            return True, None
        if control.kind not in (CONTROL_ABORT, CONTROL_COMMIT):
            return False, None
        entry = self._aborted.pop(header.producer_id, None) if control.kind == CONTROL_ABORT else None
        has_data = header.producer_id in self._with_data
        self._with_data.pop(header.producer_id, None)
        return not has_data, entry if has_data else None

    def _begin(self, last_offset: int) -> None:
        while self._waiting and self._waiting[0].first_offset <= last_offset:
            entry = self._waiting.popleft()
            self._aborted[entry.producer_id] = entry


# The second pass


class CleanedOutput:
    """Writes `.cleaned` segments, and begins a new one when the last is full."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._open_files = OpenFiles()
        self.made: list[Segment] = [self._begin(base_offset)]

    def write(self, batch: memoryview | bytearray, header: BatchHeader) -> None:
        """Appends a batch. `header` is its header in the old segment; the offsets are the same."""
        segment = self.made[-1]
        is_full = segment.size + len(batch) > segment.bytes_max or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        if segment.size and is_full:
            self._end(segment, header.base_offset)
            segment = self._begin(header.base_offset)
            self.made.append(segment)
        timestamp = largest_time(read_batch_header(batch), batch, segment.unpacked_bytes_max)
        segment.file().pwrite(batch, segment.size)
        segment.note_batch(len(batch), header.last_offset, timestamp)

    def note_aborted(self, entry: AbortedTransaction) -> None:
        self.made[-1].add_aborted(entry)

    def finish(self, end_offset: int) -> None:
        self._end(self.made[-1], end_offset)

    def _begin(self, base_offset: int) -> Segment:
        made = CleanedSegment(
            self._disk, self._directory, base_offset, config=self._config, now_ms=self._now_ms, open_files=self._open_files, notes=[]
        )
        made.open_file(create=True)
        return made

    def _end(self, segment: Segment, end_offset: int) -> None:
        """Seals and syncs a segment, so that the event loop need not sync it."""
        segment.seal(end_offset)
        segment.file().sync()
        segment.release_file()
        for suffix in SEGMENT_SUFFIXES[1:]:
            if self._disk.exists(segment.path(suffix)):
                file = self._disk.open(segment.path(suffix))
                try:
                    file.sync()
                finally:
                    file.close()


def _pairs(numbers: array[int]) -> frozenset[tuple[int, int]]:
    return frozenset(zip(numbers[::2], numbers[1::2], strict=True))


class _Rewrite:
    """The second pass: keeps, shortens or removes each batch."""

    def __init__(self, job: CompactionJob, latest: dict[bytes, int], end_offset: int, output: CleanedOutput) -> None:
        self._job = job
        self._latest = latest
        self._end_offset = end_offset
        self._output = output
        self._transactions = CleanedTransactions(iter(job.aborted))
        self._horizon_ms = job.now_ms + job.config.delete_retention_ms
        self._kept_batches = _pairs(job.kept_batches)
        self._kept_markers = _pairs(job.kept_markers)
        self.unread_batches = 0
        self.unread_reason = ""

    def run(self, disk: Disk, segments: tuple[SegmentFile, ...]) -> None:
        for segment in segments:
            for header, batch in _batches(disk, self._job, segment):
                entry: AbortedTransaction | None = None
                if header.is_control:
                    is_needless, entry = self._transactions.end(header, _read_control(batch))
                    kept = self._keep_marker(header, batch, is_needless)
                else:
                    kept = self._keep_data(header, batch)
                if kept is not None:
                    self._output.write(kept, header)
                if entry is not None:
                    self._output.note_aborted(entry)

    def _keep_marker(self, header: BatchHeader, batch: memoryview, is_needless: bool) -> memoryview | bytearray | None:
        if not is_needless or (header.producer_id, header.producer_epoch) in self._kept_markers:
            return batch
        if header.next_offset == self._end_offset:
            return batch
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None and header.record_count:
            return rewrite_batch(header, read_records(batch), delete_horizon_ms=self._horizon_ms)
        return batch if horizon_ms is not None and horizon_ms > self._job.now_ms else None

    def _keep_data(self, header: BatchHeader, batch: memoryview) -> memoryview | bytearray | None:
        if self._transactions.is_aborted(header):
            return self._keep_header(header, batch)
        if header.record_count == 0:
            return self._keep_header(header, batch)
        try:
            kept, dropped, is_horizon_due = self._judge(header, batch)
        except WireError as error:
            self.unread_batches += 1
            self.unread_reason = self.unread_reason or f"offset {header.base_offset}: {error}"
            return batch
        if not kept.records:
            return self._keep_header(header, batch)
        if not dropped and not is_horizon_due:
            return batch
        horizon_ms = header.delete_horizon_ms
        records = (record for record in self._records(batch) if self._is_kept(record, horizon_ms))
        return rewrite_records(header, records, kept, delete_horizon_ms=self._horizon_ms if is_horizon_due else None)

    def _records(self, batch: memoryview) -> Iterator[Record]:
        return iter_records(batch, decompressed_bytes_max=self._job.config.decompressed_bytes_max)

    def _judge(self, header: BatchHeader, batch: memoryview) -> tuple[Retained, int, bool]:
        """Returns the kept part, the number of removed records, and whether a kept tombstone needs a delete horizon. It decodes one record
        at a time, because all records of a batch of a few kilobytes may need a gigabyte.
        """
        count = dropped = first_timestamp = max_timestamp = 0
        is_horizon_due = False
        horizon_ms = header.delete_horizon_ms
        for record in self._records(batch):
            if not self._is_kept(record, horizon_ms):
                dropped += 1
                continue
            if not count:
                first_timestamp = max_timestamp = record.timestamp
            elif record.timestamp > max_timestamp:
                max_timestamp = record.timestamp
            count += 1
            if record.value is None and horizon_ms is None and record.offset < self._end_offset:
                is_horizon_due = True
        return Retained(count, first_timestamp, max_timestamp), dropped, is_horizon_due

    def _is_kept(self, record: Record, horizon_ms: int | None) -> bool:
        if record.offset >= self._end_offset:
            return True
        if record.key is None:
            return False  # from before the topic was compacted; no later record could ever replace it
        if record.offset < self._latest.get(short_key(record.key), -1):
            return False
        return record.value is not None or horizon_ms is None or horizon_ms > self._job.now_ms

    def _keep_header(self, header: BatchHeader, batch: memoryview) -> memoryview | bytearray | None:
        is_remembered = (header.producer_id, header.last_offset) in self._kept_batches
        if not is_remembered and header.next_offset != self._end_offset:
            return None
        return batch if header.record_count == 0 else rewrite_batch(header, [])
