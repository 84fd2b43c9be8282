"""The two sparse indexes of a segment, offset to position and timestamp to offset, byte for byte as in Kafka.

`%020d.index`: (relative offset i32, position i32) of a batch; the offset is the batch's last one. A batch gets an entry if it begins more
than `index.interval.bytes` after the batch of the previous entry. `%020d.timeindex`: (largest timestamp so far i64, relative offset i32),
at most one for each entry of the first index, and one more when the segment is sealed or closed.

In memory both are machine arrays (8 and 12 bytes an entry) that bisect searches. Entries are written in runs: when `PENDING_MAX` of them
are unwritten, at a checkpoint (`recovery_aids.py`), at a roll and at close. The first batch of a segment makes the files. Nothing is mapped
or allocated in advance.

Invariants: offsets, positions and timestamps never decrease. An index can always be rebuilt from its segment, so a crash may leave it short
or wrong: `load` checks its entries, and the segment checks that a batch begins at an entry's position. `segment.py` reads the segment.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from ottla.base.ports import Disk
from ottla.base.types import NO_TIMESTAMP
from ottla.storage.small_files import read_whole

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
PENDING_MAX = 1024
RELATIVE_OFFSET_MAX = (1 << 31) - 1
NO_ENTRY = (0, 0)
"""The result of a look-up before the first entry: the segment's first batch."""

_TIME_ENTRY = Struct(">qi")
_IS_LITTLE = sys.byteorder == "little"


def _write_at(disk: Disk, path: str, data: bytes, position: int) -> None:
    """Writes `data` at `position` and cuts the file behind it."""
    file = disk.open(path, create=True)
    try:
        if data:
            file.pwrite(data, position)
        if file.size() != position + len(data):
            file.truncate(position + len(data))
    finally:
        file.close()


class OffsetIndex:
    """Relative offset -> position; `path` may change when its directory is renamed."""

    __slots__ = ("offsets", "path", "positions", "written")

    def __init__(self, path: str) -> None:
        self.path = path
        self.offsets = array("I")
        self.positions = array("I")
        self.written = 0

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def last_position(self) -> int:
        """The position of the last entry's batch; 0 if there is no entry, because the segment's first batch never gets one."""
        return self.positions[-1] if self.positions else 0

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def lookup(self, relative_offset: int) -> tuple[int, int]:
        """Returns the last entry at or before an offset, as (relative offset, position). A scan for the offset may begin at this position.
        """
        index = bisect_right(self.offsets, relative_offset)
        return (self.offsets[index - 1], self.positions[index - 1]) if index else NO_ENTRY

    def offset_from(self, position: int) -> int:
        """Returns the relative offset of the first entry at or after a position, -1 if there is none. Batches before that entry have
        smaller offsets."""
        index = bisect_left(self.positions, position)
        return self.offsets[index] if index < len(self.offsets) else -1

    def keep(self, count: int) -> None:
        """Keeps the first `count` entries. The next `write` cuts the file."""
        del self.offsets[count:]
        del self.positions[count:]
        self.written = min(self.written, count)

    def encode(self, start: int = 0) -> bytes:
        merged = array("I", bytes(OFFSET_ENTRY_BYTES * (len(self.offsets) - start)))
        merged[0::2] = self.offsets[start:]
        merged[1::2] = self.positions[start:]
        if _IS_LITTLE:
            merged.byteswap()
        return merged.tobytes()

    def write(self, disk: Disk) -> None:
        """Brings the file up to date (it is not synced)."""
        _write_at(disk, self.path, self.encode(self.written), self.written * OFFSET_ENTRY_BYTES)
        self.written = len(self.offsets)

    def load(self, disk: Disk, segment_bytes: int) -> str:
        """Reads the file. Returns its problem, or an empty string. After a problem the index is unchanged."""
        data = read_whole(disk, self.path)
        if data is None:
            return "is missing"
        if len(data) % OFFSET_ENTRY_BYTES:
            return f"has {len(data)} bytes, not a multiple of {OFFSET_ENTRY_BYTES}"
        merged = array("I", data)
        if _IS_LITTLE:
            merged.byteswap()
        offsets, positions = merged[0::2], merged[1::2]
        if not _is_increasing(offsets) or not _is_increasing(positions):
            return "has entries out of order"
        if len(offsets) and (offsets[-1] > RELATIVE_OFFSET_MAX or positions[-1] >= segment_bytes or positions[0] == 0):
            return "has entries outside the segment"
        self.offsets, self.positions, self.written = offsets, positions, len(offsets)
        return ""


class TimeIndex:
    """Largest timestamp so far -> relative offset of the last record in the first batch that has this timestamp."""

    __slots__ = ("offsets", "path", "timestamps", "written")

    def __init__(self, path: str) -> None:
        self.path = path
        self.timestamps = array("q")
        self.offsets = array("I")
        self.written = 0

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """(largest timestamp, relative offset) of the last entry, or (-1, 0)."""
        return (self.timestamps[-1], self.offsets[-1]) if self.timestamps else (NO_TIMESTAMP, 0)

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Adds an entry when the largest timestamp has grown since the last one."""
        if timestamp > (self.timestamps[-1] if self.timestamps else NO_TIMESTAMP):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def lookup(self, timestamp: int) -> int:
        """Returns the relative last offset of the newest batch with an entry up to `timestamp`, 0 if there is none. All records before this
        batch are older than `timestamp`, so a search may begin at it.
        """
        index = bisect_right(self.timestamps, timestamp)
        return self.offsets[index - 1] if index else 0

    def count_below(self, relative_offset: int) -> int:
        return bisect_left(self.offsets, relative_offset)

    def keep(self, count: int) -> None:
        del self.timestamps[count:]
        del self.offsets[count:]
        self.written = min(self.written, count)

    def encode(self, start: int = 0) -> bytes:
        pack = _TIME_ENTRY.pack
        return b"".join(map(pack, self.timestamps[start:], self.offsets[start:]))

    def write(self, disk: Disk) -> None:
        """Brings the file up to date (it is not synced)."""
        _write_at(disk, self.path, self.encode(self.written), self.written * TIME_ENTRY_BYTES)
        self.written = len(self.timestamps)

    def load(self, disk: Disk, relative_end: int) -> str:
        """Reads the file. Returns its problem, or an empty string. After a problem the index is unchanged."""
        data = read_whole(disk, self.path)
        if data is None:
            return "is missing"
        if len(data) % TIME_ENTRY_BYTES:
            return f"has {len(data)} bytes, not a multiple of {TIME_ENTRY_BYTES}"
        timestamps, offsets = array("q"), array("I")
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            if offset < 0 or offset >= relative_end:
                return "has entries outside the segment"
            timestamps.append(timestamp)
            offsets.append(offset)
        if not _is_increasing(timestamps) or any(first > second for first, second in zip(offsets, offsets[1:], strict=False)):
            return "has entries out of order"
        self.timestamps, self.offsets, self.written = timestamps, offsets, len(timestamps)
        return ""


def read_last_time(disk: Disk, path: str) -> tuple[int, int] | None:
    """Returns the last (timestamp, relative offset) of a time index file; None if it is missing, empty, or not a
    whole number of entries."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        if size == 0 or size % TIME_ENTRY_BYTES:
            return None
        timestamp, relative_offset = _TIME_ENTRY.unpack(file.pread(TIME_ENTRY_BYTES, size - TIME_ENTRY_BYTES))
        return timestamp, relative_offset
    finally:
        file.close()


def _is_increasing(values: array[int]) -> bool:
    return all(first < second for first, second in zip(values, values[1:], strict=False))
