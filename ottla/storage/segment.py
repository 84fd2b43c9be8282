"""One segment of a log: consecutive batches in `%020d.log`, two indexes and the aborted transactions, in files that are named by the first
offset.

The last segment of a log is the active one, which takes appends. It remembers the last offsets and positions of its last few hundred
batches, so that reads at the end of the log find their position without reading the disk. All others are sealed, and load their indexes on
use. Files are opened on use; all logs share one limit of open files (`OpenFiles`). A damaged offset or time index is rebuilt from the
batches, with a line in `notes`. Invariants: positions stay below 2^31, offsets within 2^31 of the base; `size` counts whole batches only,
without the bytes of a failed write. `log.py` selects the segment of an offset, and rolls. `recovery.py` recovers segments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct
from zlib import crc32

from ottla.base.errors import DamagedLogError, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.ports import Disk, File
from ottla.base.types import NO_OFFSET, NO_TIMESTAMP
from ottla.storage.aborted import ENTRY_BYTES, AbortedTransaction, AbortedTransactions, decode_aborted, encode_aborted
from ottla.storage.file_slice import BytesFile, FileSlice, SharedFile
from ottla.storage.index import (
    NO_ENTRY,
    OFFSET_ENTRY_BYTES,
    PENDING_MAX,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
    read_last_time,
)
from ottla.storage.open_files import OpenFiles
from ottla.storage.scan import NEVER, SCAN_BYTES, is_batch_at, scan_batches
from ottla.storage.small_files import read_whole, write_atomically
from ottla.wire.batch_header import BATCH_LENGTH_MIN, BATCH_OVERHEAD, HEADER, LOG_OVERHEAD, BatchHeader
from ottla.wire.record_times import largest_time

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)

TAIL_MAX = 512
LOOKUP_BYTES = 8192
POSITION_MAX = (1 << 31) - 1
ROLL_CHECK_DUE = -2
"""A `roll_timestamp` below every timestamp, so that the next append calls `should_roll`."""

_PREFIX = Struct(">qi11xi")  # base offset, batch length, last offset delta: the fields of a header that a look-up needs
COPY_BYTES_MAX = 1 << 16
_new_tuple = tuple.__new__


class Segment:
    """See the module. `Log` and recovery create it."""

    __slots__ = (
        "_aborted", "base_offset", "bytes_max", "created_ms", "directory", "disk", "end_offset", "first_timestamp", "has_aborted",
        "has_index_files", "index", "index_entries_max", "index_interval_bytes", "indexed_position", "is_loaded", "is_max_known",
        "is_name_durable", "max_timestamp", "max_timestamp_offset", "notes", "open_files", "roll_ms", "roll_offset", "roll_timestamp",
        "shared", "size", "tail_floor", "tail_lasts", "tail_positions", "times", "unpacked_bytes_max", "write",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, config: LogConfig, now_ms: int, open_files: OpenFiles, notes: list[str]
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.open_files = open_files
        self.notes = notes
        self.created_ms = now_ms
        self.size = 0
        self.end_offset = NO_OFFSET  # the next segment's base once sealed
        self.shared: SharedFile | None = None
        self.write: Callable[[memoryview | bytes | bytearray, int], None] | None = None  # `pwrite` of the open file
        self.has_aborted = False
        self._aborted: AbortedTransactions | None = None
        self.is_name_durable = self.has_index_files = False
        self.roll_offset = base_offset + RELATIVE_OFFSET_MAX
        self.configure(config)
        self._reset(is_loaded=True)
        self.tail_lasts = array("q")
        self.tail_positions = array("q")
        self.tail_floor = base_offset - 1

    def _reset(self, *, is_loaded: bool) -> None:
        self.index = OffsetIndex(self.path(INDEX_SUFFIX))
        self.times = TimeIndex(self.path(TIME_INDEX_SUFFIX))
        self.is_loaded = self.is_max_known = is_loaded
        self.indexed_position = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.first_timestamp: int | None = None
        self.roll_timestamp = ROLL_CHECK_DUE

    def configure(self, config: LogConfig) -> None:
        """Applies settings. The next append computes the timestamp at which the segment rolls."""
        self.bytes_max = min(config.segment_bytes, POSITION_MAX)
        roll_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
        jitter = crc32(self.path(LOG_SUFFIX).encode())  # depends on the path only, so that a simulation can be repeated
        self.roll_ms = roll_ms - jitter % max(config.segment_jitter_ms, 1)
        self.roll_timestamp = ROLL_CHECK_DUE
        self.index_interval_bytes = config.index_interval_bytes
        self.unpacked_bytes_max = config.decompressed_bytes_max
        index_bytes = config.segment_index_bytes
        self.index_entries_max = max(1, min(index_bytes // OFFSET_ENTRY_BYTES, index_bytes // TIME_ENTRY_BYTES - 1))

    # Files

    def take_files(self, end_offset: int) -> None:
        """Takes over the files of a segment found on disk; `end_offset` is the next one's base, or `NO_OFFSET` for the active one."""
        self.size = self.file().size()
        self.has_index_files = self.size > 0
        self.end_offset = end_offset
        self.release_file()
        self.is_loaded = self.is_max_known = False
        self.has_aborted = self.disk.exists(self.path(ABORTED_SUFFIX))
        self.forget_tail(end_offset if self.is_sealed else NEVER)

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    def move_to(self, directory: str) -> None:
        """Notes that the partition's directory was renamed. Open descriptors remain valid."""
        self.directory = directory
        self.index.path = self.path(INDEX_SUFFIX)
        self.times.path = self.path(TIME_INDEX_SUFFIX)

    @property
    def is_sealed(self) -> bool:
        return self.end_offset != NO_OFFSET

    def open_file(self, *, create: bool = False) -> SharedFile:
        shared = self.shared
        if shared is None:
            path = self.path(LOG_SUFFIX)
            try:
                shared = self.shared = SharedFile(self.disk.open(path, create=create), self.open_files)
            except FileNotFoundError as error:
                raise DamagedLogError(f"{path} has vanished", path) from error
            self.write = shared.file.pwrite
            self.open_files.add(self)
        return shared

    def file(self) -> File:
        return self.open_file().file

    def release_file(self) -> None:
        """Releases the file, which closes when its last slice is freed. Drops the indexes of a sealed segment."""
        self.shared = None
        self.write = None
        if self.is_sealed and self.is_loaded:
            self.index = OffsetIndex(self.path(INDEX_SUFFIX))
            self.times = TimeIndex(self.path(TIME_INDEX_SUFFIX))
            self.is_loaded = False
        self.open_files.discard(self)

    # Appending: the active segment only

    def note_batch(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Updates size, tail and indexes for a batch that has been written at the end."""
        position = self.size
        self.size = position + size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position - self.indexed_position > self.index_interval_bytes:
            self._add_index_entry(last_offset, position)
        elif position == 0:
            self.first_timestamp = max_timestamp
            self.roll_timestamp = max_timestamp + self.roll_ms if max_timestamp >= 0 else ROLL_CHECK_DUE
            if not self.has_index_files:
                self._write_early()
        lasts = self.tail_lasts
        lasts.append(last_offset)
        self.tail_positions.append(position)
        if len(lasts) >= TAIL_MAX:
            cut = TAIL_MAX // 2
            self.tail_floor = lasts[cut - 1]
            del lasts[:cut]
            del self.tail_positions[:cut]

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        base = self.base_offset
        index = self.index
        index.append(last_offset - base, position)
        self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset - base)
        self.indexed_position = position
        if len(index) >= self.index_entries_max:
            self.bytes_max = 0
        if len(index) - index.written >= PENDING_MAX:
            self._write_early()

    def _write_early(self) -> None:
        """Writes index entries, so that recovery indexes few batches again. Ignores a failure, because the batch is stored already."""
        with suppress(StorageError):
            self.write_indexes()

    def should_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether Kafka's rules demand a new segment. Called when an append exceeds `bytes_max`, `roll_timestamp` or `roll_offset`."""
        if last_offset > self.roll_offset:
            return True
        if self.size == 0:
            return False
        if self.size + size > self.bytes_max:
            return True
        first = self.first_batch_timestamp()
        if first >= 0:
            self.roll_timestamp = first + self.roll_ms
            return max_timestamp > self.roll_timestamp
        return now_ms - self.created_ms > self.roll_ms

    def write_indexes(self) -> None:
        """Writes the new entries of both indexes, without a sync. An active segment that never had a batch gets no index files."""
        if self.is_loaded and (self.size > 0 or self.has_index_files):
            self.index.write(self.disk)
            self.times.write(self.disk)
            self.has_index_files = True

    def add_final_time_entry(self) -> None:
        """Adds Kafka's closing entry: the largest timestamp of the whole segment."""
        if self.is_loaded and self.size > 0:
            self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def seal(self, end_offset: int) -> None:
        self.add_final_time_entry()
        self.has_index_files = True
        self.write_indexes()
        self.end_offset = end_offset
        self.forget_tail(end_offset)
        if self.shared is not None:
            self.open_files.add(self)

    def unseal(self) -> None:
        """Makes this the active segment again, after later segments were removed."""
        self.load_indexes()
        self.end_offset = NO_OFFSET
        self.open_files.discard(self)
        if self.shared is not None:
            self.open_files.add(self)

    def forget_tail(self, end_offset: int) -> None:
        self.tail_lasts = array("q")
        self.tail_positions = array("q")
        self.tail_floor = end_offset - 1

    def first_batch_timestamp(self) -> int:
        """Returns the start of the segment's age: the first batch's largest timestamp (its base timestamp if that is wrong), or -1."""
        if self.first_timestamp is None:
            if self.size == 0:
                return NO_TIMESTAMP
            header = self.header_at(0)
            self.first_timestamp = header.max_timestamp if header.is_largest_time_credible else header.base_timestamp
        return self.first_timestamp

    # Looking things up

    def position_of(self, offset: int) -> int:
        """Returns the position of the first batch whose last offset is at least `offset`; the segment's size if there is none."""
        if offset > self.tail_floor:
            index = bisect_left(self.tail_lasts, offset)
            return self.tail_positions[index] if index < len(self.tail_positions) else self.size
        if offset <= self.base_offset:
            return self._walk_to(offset, NO_ENTRY)
        self.load_indexes()
        position = self._walk_to(offset, self.index.lookup(offset - self.base_offset))
        if position < 0:
            self._mend_indexes("the index names a batch that is not there")
            position = self._walk_to(offset, self.index.lookup(offset - self.base_offset))
        return position

    def _walk_to(self, offset: int, entry: tuple[int, int]) -> int:
        """Returns the position of the first batch from an index entry on that reaches `offset`, or the size; -1 if the entry is wrong."""
        file, size, position = self.file(), self.size, entry[1]
        unpack = _PREFIX.unpack_from
        expected = NO_OFFSET if entry is NO_ENTRY else self.base_offset + entry[0]
        while position < size:
            piece = file.pread(min(LOOKUP_BYTES, size - position), position)
            at, limit = 0, len(piece) - _PREFIX.size
            if expected != NO_OFFSET:
                if limit < 0 or sum(unpack(piece)[::2]) != expected:
                    return -1
                expected = NO_OFFSET
            while at <= limit:
                base_offset, batch_length, last_offset_delta = unpack(piece, at)
                if not BATCH_LENGTH_MIN <= batch_length <= size - position - at - LOG_OVERHEAD:
                    raise DamagedLogError(f"{file.path} is damaged: no batch at {position + at}", file.path)
                if base_offset + last_offset_delta >= offset:
                    return position + at
                at += batch_length + LOG_OVERHEAD
            if at == 0:
                raise DamagedLogError(f"{file.path} is damaged: no batch at {position}", file.path)
            position += at
        return size

    def header_at(self, position: int) -> BatchHeader:
        piece = self.file().pread(BATCH_OVERHEAD, position)
        if len(piece) < BATCH_OVERHEAD:
            raise DamagedLogError(f"{self.path(LOG_SUFFIX)} is damaged: no batch at {position}", self.path(LOG_SUFFIX))
        header: BatchHeader = _new_tuple(BatchHeader, HEADER.unpack(piece))
        return header

    def batch_size_at(self, position: int) -> int:
        """Returns the size of the batch that begins at `position`."""
        positions = self.tail_positions
        if positions and position >= positions[0]:
            index = bisect_left(positions, position) + 1
            return (positions[index] if index < len(positions) else self.size) - position
        return self.header_at(position).batch_length + LOG_OVERHEAD

    def slice(self, position: int, length: int) -> FileSlice:
        """Returns a slice for a reader, which keeps the file open. While too many files are open, the slice is a copy of
        at most `COPY_BYTES_MAX` bytes, or of one larger batch."""
        if not (self.open_files.is_crowded and self.open_files.update_crowded()):
            return FileSlice(self.shared or self.open_file(), position, length)
        if length > COPY_BYTES_MAX:
            length = min(length, max(COPY_BYTES_MAX, self.batch_size_at(position)))
        data = self.file().pread(length, position)
        return FileSlice(SharedFile(BytesFile(data, self.path(LOG_SUFFIX))), 0, len(data))

    def scan(self, position: int, *, first_bytes: int = SCAN_BYTES) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yields all batches from `position` on, without a check of CRCs."""
        return scan_batches(self.file(), position, self.size, next_offset=self.base_offset, first_bytes=first_bytes)

    def largest_timestamp(self) -> int:
        """Returns the largest timestamp of all batches; if it is not known, from the last entry of the time index file."""
        if not self.is_max_known:
            entry = read_last_time(self.disk, self.path(TIME_INDEX_SUFFIX))
            if entry is None:
                self.load_indexes()
            else:
                self.max_timestamp, self.max_timestamp_offset = entry[0], self.base_offset + entry[1]
                self.is_max_known = True
        return self.max_timestamp

    # Indexes on demand

    def load_indexes(self) -> None:
        """Reads the index files, if they are not loaded. Rebuilds damaged ones from the batches."""
        if self.is_loaded:
            return
        problem = self.read_indexes()
        if self.is_sealed:
            self.open_files.add(self)
        if problem:
            self._mend_indexes(problem)

    def _mend_indexes(self, problem: str) -> None:
        self.notes.append(f"{self.path(LOG_SUFFIX)}: {problem}; made its indexes again")
        self.rebuild_indexes()
        self.write_indexes()

    def read_indexes(self) -> str:
        """Reads both index files, without comparing them with the batches. Returns their problem, or an empty string."""
        self._reset(is_loaded=True)
        if not self.size:
            return ""
        relative_end = (self.end_offset if self.is_sealed else self.base_offset + RELATIVE_OFFSET_MAX + 1) - self.base_offset
        if problem := self.index.load(self.disk, self.size):
            return f"the index {problem}"
        problem = self.times.load(self.disk, relative_end)
        is_timed = self.is_sealed or len(self.index) > 0  # otherwise both indexes may be empty
        if problem or (is_timed and not self.times and self.first_batch_timestamp() >= 0):
            return f"the time index {problem or 'is empty'}"
        self._restore_from_indexes()
        return ""

    def _restore_from_indexes(self) -> None:
        self.indexed_position = self.index.last_position
        if len(self.index) >= self.index_entries_max:
            self.bytes_max = 0
        timestamp, relative_offset = self.times.last
        self.max_timestamp, self.max_timestamp_offset = timestamp, self.base_offset + relative_offset

    def drop_index_tail(self, offset: int) -> int:
        """Removes the index entries from `offset` on, and some entries before `offset`. Returns the position at which a scan must begin to
        restore the entries before `offset`."""
        base = self.base_offset
        self.times.keep(self.times.count_below(offset - base))
        known_to = min(offset - 1 - base, self.times.last[1])
        entry = self.index.lookup(known_to) if known_to > 0 else NO_ENTRY
        if entry != NO_ENTRY and not is_batch_at(self.file(), entry[1], base + entry[0]):
            self.forget_indexes()
            return 0
        self.index.keep(bisect_left(self.index.positions, max(entry[1], 1)))
        self._restore_from_indexes()
        return entry[1]

    def index_batch(self, position: int, header: BatchHeader, batch: memoryview) -> None:
        """Updates the indexes for a batch that a scan has found, as `note_batch` does for an appended one."""
        last_offset = header.base_offset + header.last_offset_delta
        timestamp = largest_time(header, batch, self.unpacked_bytes_max)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position - self.indexed_position > self.index_interval_bytes:
            self._add_index_entry(last_offset, position)
        elif position == 0:
            self.first_timestamp = timestamp

    def forget_indexes(self) -> None:
        self._reset(is_loaded=True)

    def rebuild_indexes(self) -> None:
        self.forget_indexes()
        for position, header, batch in self.scan(0):
            self.index_batch(position, header, batch)
        if self.is_sealed:
            self.add_final_time_entry()

    # Cutting

    def truncate_to(self, offset: int) -> int:
        """Cuts the batch that holds `offset` and all later ones, durably. Returns the new end: `offset`, or the base of the cut batch."""
        position = self.position_of(offset)
        if position < self.size:
            offset = min(offset, self.header_at(position).base_offset)
            self.cut_at(position, offset)
        return offset

    def cut_at(self, position: int, offset: int) -> None:
        """Cuts the file durably at the start of a batch with base offset `offset`, and updates the indexes. The segment becomes active."""
        file = self.file()
        file.truncate(position)
        file.sync()
        self.size = position
        self.forget_tail(offset)
        self.end_offset = NO_OFFSET
        start = self.drop_index_tail(offset)
        if position == 0:
            self._reset(is_loaded=True)
        for at, header, batch in self.scan(start):
            self.index_batch(at, header, batch)
        self.write_indexes()

    def write_again(self, position: int) -> None:
        """Writes the batches from `position` on once more, as they are, so that the next sync must write them to the disk."""
        file = self.file()
        while position < self.size:
            piece = file.pread(min(SCAN_BYTES, self.size - position), position)
            file.pwrite(piece, position)
            position += len(piece)

    # Aborted transactions

    def aborted(self) -> AbortedTransactions:
        """Returns the transactions with an abort marker in this segment. Raises `StorageError` for a damaged index."""
        if self._aborted is None:
            path = self.path(ABORTED_SUFFIX)
            data = read_whole(self.disk, path) if self.has_aborted else None
            self._aborted = decode_aborted(data or b"", path)
        return self._aborted

    def add_aborted(self, transaction: AbortedTransaction) -> str:
        """Adds an aborted transaction to the index file. Returns the file's path, which must be synced with the log."""
        known = self.aborted()
        path = self.path(ABORTED_SUFFIX)
        file = self.disk.open(path, create=True)
        try:
            file.pwrite(encode_aborted(transaction), len(known) * ENTRY_BYTES)
        finally:
            file.close()
        self.has_aborted = True
        known.append(transaction)
        return path

    def cut_aborted(self, offset: int) -> None:
        """Removes transactions with a marker at or after `offset`."""
        known = self.aborted()
        kept = known.count_below(offset)
        if kept < len(known):
            self.replace_aborted(list(known)[:kept])

    def replace_aborted(self, transactions: list[AbortedTransaction]) -> None:
        """Replaces the index atomically, because lost entries would make records of aborted transactions visible."""
        write_atomically(self.disk, self.path(ABORTED_SUFFIX), b"".join(map(encode_aborted, transactions)))
        self.has_aborted = bool(transactions)
        self._aborted = AbortedTransactions(transactions)

    # Removal

    def files(self) -> list[str]:
        """Returns the paths of this segment's files that exist."""
        return [path for suffix in SEGMENT_SUFFIXES if self.disk.exists(path := self.path(suffix))]

    def remove(self) -> None:
        self.release_file()
        for path in self.files():
            self.disk.remove(path)
