"""Bounds how many segments of all logs keep their file open.

A segment is sealed when its log has a newer one; the last segment of a log is active. At most `sealed_max` sealed segments are open,
because each also has its indexes in memory; one may always be open. The sealed segment that was opened first is closed first. If no other
sealed segment is open, the clock algorithm (second chance) selects an active segment, preferably one without recent writes. A file that is
not synced yet may be closed too: the group commit opens it again by its name. A reader's slice keeps its file open. When more than
`files_max` files are open in all, `is_crowded` is set. Readers then get copies of the bytes instead of slices of files.

The last small batch that readers waited for is kept in memory, because all of them read it next.

If the write-back of a file fails while no process has it open, Linux may not report that later. This module does not detect it. So
`files_max` should be larger than the number of logs that are written to at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.storage.file_slice import LatestBatch, SharedFile

SECOND_CHANCES_MAX = 8
LATEST_BYTES_MAX = 4096
"""Larger batches are not kept: waiting readers read them from the page cache, which costs less than a copy at each append."""


class OpenSegment(Protocol):
    """The part of `segment.Segment` that is used here."""

    size: int

    @property
    def shared(self) -> SharedFile | None: ...

    @property
    def is_sealed(self) -> bool: ...

    def release_file(self) -> None:
        """Closes the file and calls `OpenFiles.discard`."""


class OpenFiles:
    """The limits on open files, and the segments that count: active segments with an open file, and sealed segments with an open file or
    with indexes in memory."""

    __slots__ = ("active", "alive", "files_max", "is_crowded", "latest", "on_short", "sealed_max", "segments")

    def __init__(self, files_max: int = 8, sealed_max: int | None = None) -> None:
        self.files_max = files_max
        self.sealed_max = max(files_max if sealed_max is None else sealed_max, 1)
        self.segments: dict[OpenSegment, None] = {}
        self.active: dict[OpenSegment, int] = {}  # each with its size at the last inspection
        self.alive: set[int] = set()  # the files that are open, by identity
        self.on_short: Callable[[str], object] = lambda _path: None
        """Called with the path of a file that is shorter than a reader's slice, or cannot be read."""
        self.is_crowded = False
        self.latest: LatestBatch | None = None
        """The batch of `keep_latest`. `Log.read` returns it to all readers while it is the last batch of its log."""

    def add(self, segment: OpenSegment) -> None:
        """Adds a segment that has opened its file. Closes others if there are too many, never this one."""
        self.discard(segment)
        if segment.is_sealed:
            self.segments[segment] = None
        else:
            self.active[segment] = segment.size
        while len(self.segments) > self.sealed_max:
            next(iter(self.segments)).release_file()
        while len(self.segments) + len(self.active) > max(self.files_max, 1):
            self._oldest(segment).release_file()
        self.update_crowded()

    def discard(self, segment: OpenSegment) -> None:
        self.segments.pop(segment, None)
        self.active.pop(segment, None)
        self.latest = None  # A file is being closed, cut or removed, perhaps the file of this batch.

    def keep_latest(self, segment: OpenSegment, batch: memoryview, base_offset: int) -> None:
        """Keeps a small batch that was just appended in memory, for the readers that wait for it."""
        if len(batch) <= LATEST_BYTES_MAX and (shared := segment.shared) is not None:
            self.latest = LatestBatch(shared, segment.size - len(batch), bytes(batch), base_offset)

    def update_crowded(self) -> bool:
        """Sets and returns `is_crowded`: whether more files are open than the limit allows."""
        self.is_crowded = len(self.alive) > self.files_max
        return self.is_crowded

    def _oldest(self, newest: OpenSegment) -> OpenSegment:
        """Returns the segment to close next, never `newest`. At least one other segment must be open."""
        sealed = next(iter(self.segments), newest)
        if sealed is not newest:
            return sealed
        for _ in range(SECOND_CHANCES_MAX):
            segment, size = next(iter(self.active.items()))
            if segment.size == size or segment is newest:
                break
            del self.active[segment]
            self.active[segment] = segment.size
        return next(segment for segment in self.active if segment is not newest)
