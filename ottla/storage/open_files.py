"""Bounds how many segments of all logs keep their file open.

Of sealed segments at most `sealed_max`, since each has its indexes in memory, too; the one opened first is closed first. Of active ones,
one that was not written to since it was last looked at is closed. A file that is not synced yet may be closed like any other: the group
commit opens it again by its name. A reader's slice keeps its own hold on a file: when too many are held so, `is_crowded` is set and
readers get copies.

Left out: a failed write-back of a file that no process has open (Linux may not report it later); the bound is meant to be larger
than the number of logs that are written to at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

SECOND_CHANCES_MAX = 8


class OpenSegment(Protocol):
    size: int

    @property
    def is_sealed(self) -> bool: ...

    def release_file(self) -> None:
        """Closes the file; must call `discard`."""


class OpenFiles:
    """The bound on open files, and the segments that count towards it."""

    __slots__ = ("active", "alive", "files_max", "is_crowded", "on_short", "sealed_max", "segments")

    def __init__(self, files_max: int = 8, sealed_max: int | None = None) -> None:
        self.files_max = files_max
        self.sealed_max = files_max if sealed_max is None else sealed_max
        self.segments: dict[OpenSegment, None] = {}
        self.active: dict[OpenSegment, int] = {}  # with its size when it was last looked at
        self.alive: set[int] = set()  # the files that are open, by identity
        self.on_short: Callable[[str], object] = lambda _path: None
        """Called with the path of a file that lacks bytes that were promised to a reader, or cannot be read."""
        self.is_crowded = False

    def add(self, segment: OpenSegment) -> None:
        """Counts a segment that has opened its file, and keeps it open for now whatever else must close."""
        self.discard(segment)
        if segment.is_sealed:
            self.segments[segment] = None
        else:
            self.active[segment] = segment.size
        while len(self.segments) > self.sealed_max:
            next(iter(self.segments)).release_file()
        while len(self.segments) + len(self.active) > max(self.files_max, 1):
            self._oldest(segment).release_file()
        self.look_again()

    def discard(self, segment: OpenSegment) -> None:
        self.segments.pop(segment, None)
        self.active.pop(segment, None)

    def look_again(self) -> bool:
        self.is_crowded = len(self.alive) > self.files_max
        return self.is_crowded

    def _oldest(self, newest: OpenSegment) -> OpenSegment:
        """Returns the segment to close next. Never the newest, which was added last, so there is always another."""
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
