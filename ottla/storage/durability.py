"""Tracks the end of a log's synced part, and the files that the next sync must include.

A group commit calls `unsynced` and syncs the returned files in their order (contents first, then the names in the directory), perhaps in a
thread. Then it calls `mark` with the log's end at the time of `unsynced`. Small files (epochs, the indexes of a sealed segment, aborted
transactions, metadata) are noted when they are written, and stay noted until a round that synced them is marked. Invariant:
`recovery_point` never exceeds the synced part of the log: a round that began before a truncation raises it at most to the offset of the
truncation. One round runs at a time. `server/flusher.py` runs the syncs.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.ports import Disk
from ottla.storage.file_slice import DirectorySync, PathSync, Syncable
from ottla.storage.segment import LOG_SUFFIX, Segment
from ottla.storage.small_files import directory_of, remove_cut, write_cut

_NO_CEILING = (1 << 63) - 1


class Durability:
    """The recovery point of one log, and its files that changed since they were synced."""

    __slots__ = ("_ceiling", "_changed", "_disk", "_has_cut", "_is_parent_unsynced", "_named_end", "_syncing", "recovery_point")

    def __init__(self, disk: Disk, recovery_point: int, *, is_name_unsynced: bool) -> None:
        self._disk = disk
        self.recovery_point = recovery_point
        self._is_parent_unsynced = is_name_unsynced
        self._changed: dict[str, None] = {}
        self._syncing: tuple[str, ...] = ()
        self._ceiling = _NO_CEILING
        self._named_end = 0  # the base offset of the newest segment that the running round syncs
        self._has_cut = is_name_unsynced
        """Whether the directory may hold the note of a cut. A log that was closed cleanly has none."""

    def note(self, *paths: str) -> None:
        """Notes files that were written and must be synced with the log."""
        self._changed.update(dict.fromkeys(paths))

    def name(self, first: Segment, directory: str) -> None:
        """Makes the name of a log's first segment durable, before another segment exists or older ones are removed. If a power failure
        removed this name and not a later one, the log would seem to begin later.
        """
        if not first.is_name_durable:
            self._disk.sync_directory(directory)
            first.is_name_durable = True

    def unsynced(self, directory: str, segments: Sequence[Segment], log_end_offset: int) -> list[Syncable]:
        self._ceiling = _NO_CEILING
        files: list[Syncable] = []
        active = segments[-1]
        self._named_end = active.base_offset
        if self.recovery_point < log_end_offset:
            if self.recovery_point < active.base_offset:
                files += [self._content(segment) for segment in segments[:-1] if segment.end_offset > self.recovery_point]
            if active.size:
                files.append(self._content(active))
        if self._changed:
            self._syncing = tuple(dict.fromkeys((*self._syncing, *self._changed)))
            self._changed = {}
        files += [PathSync(self._disk, path) for path in self._syncing]
        if self._syncing or not active.is_name_durable:
            files.append(DirectorySync(self._disk, directory))
        if self._is_parent_unsynced:
            files.append(DirectorySync(self._disk, directory_of(directory)))
        return files

    def _content(self, segment: Segment) -> Syncable:
        """Returns the segment's file; by its name when it is not open, since a round over many logs would open them all at once."""
        return segment.shared or PathSync(self._disk, segment.path(LOG_SUFFIX))

    def mark(self, offset: int, segments: Sequence[Segment]) -> None:
        self.recovery_point = max(self.recovery_point, min(offset, self._ceiling))
        self._syncing = ()
        self._is_parent_unsynced = False
        for segment in reversed(segments):
            if segment.is_name_durable:
                break
            segment.is_name_durable = segment.base_offset <= min(offset, self._named_end)

    def cut(self, offset: int, directory: str) -> None:
        """Notes a truncation to `offset`. A running round raises the recovery point at most to `offset`, because later appends beyond it
        are not synced."""
        self._bound_recovery(offset, directory)
        self._ceiling = min(self._ceiling, offset)
        self.recovery_point = min(self.recovery_point, offset)

    def restart(self, offset: int, directory: str) -> None:
        """Starts again, for a log that is about to be emptied and will begin at `offset`. A crash may leave the log without any segment, so
        the note of the cut makes recovery ignore earlier syncs (`read_cut`).
        """
        self._has_cut = True
        write_cut(self._disk, directory, offset)
        self._ceiling = 0
        self.recovery_point = offset

    def _bound_recovery(self, offset: int, directory: str) -> None:
        """Stores durably, for the next start, that nothing from `offset` on is synced. A thread may be writing the checkpoint with the
        higher recovery point; without the note the next start would trust bytes that were never synced.
        """
        if offset < self.recovery_point:
            self._has_cut = True
            write_cut(self._disk, directory, offset)

    def end_cut(self, directory: str) -> None:
        """Removes the note of a cut, if there is one: the log is closed cleanly, and all of it is synced."""
        if self._has_cut:
            remove_cut(self._disk, directory)
            self._has_cut = False
