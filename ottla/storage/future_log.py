"""The copy of a log in another directory, which will replace the log (KIP-113). The log serves while it is copied.

The copy follows the log as a follower follows its leader: it appends the log's batches unchanged, piece by piece, and is truncated before
the log is. So the copy has the log's batches up to its own end. When the log's start is raised, the copy keeps older batches until the next
`append`. A copy that ends below the log's start is emptied. `replace` puts the copy in the log's place, in one call on the loop.

At every moment one directory has the log's own name, or none has it and a copy is marked as complete (`COPIED_FILE`); then the next start
finishes the replacement (`finish_replacement`). The order: sync and mark the copy; rename the old directory, durably; give the copy the
name, durably; remove the mark. `server/directories/moves.py` decides when a piece is copied, and how fast.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode, StorageError, WireError
from ottla.base.ports import Disk
from ottla.storage.file_slice import FileSlice, Syncable
from ottla.storage.log import Log
from ottla.storage.small_files import directory_of, write_atomically

COPIED_FILE = "copied"
"""Marks the directory of a copy that is complete and synced, and about to replace its log."""


class FutureLog:
    """A log and its copy, which is open as a log of the same topic and partition."""

    __slots__ = ("_cuts", "copy", "error", "source")

    def __init__(self, source: Log, copy: Log) -> None:
        """Truncates `copy` to the batches that it has in common with `source`, and follows truncations of `source` from now on. Raises
        `StorageError`."""
        self.source = source
        self.copy = copy
        self.error: StorageError | None = None
        """Why the copy cannot be completed."""
        self._cuts = 0
        copy.disk.remove(f"{copy.directory}/{COPIED_FILE}")
        copy.truncate_to(common_end(source, copy))
        source.on_cut = self._cut

    @property
    def lag(self) -> int:
        """Number of offsets that are still to be copied."""
        return max(0, self.source.log_end_offset - self.copy.log_end_offset)

    def is_left_at_most(self, size: int) -> bool:
        """Whether at most `size` bytes are still to be copied, all of them in the active segment. Raises `StorageError`."""
        source, end = self.source, self.copy.log_end_offset
        if end < source.log_start_offset or end < source.active.base_offset:
            return False
        return end >= source.log_end_offset or source.active.size - source.active.position_of(end) <= size

    def next_piece(self, bytes_max: int) -> tuple[int, FileSlice] | None:
        """Returns the next batches of the log, which may be read in any thread, and a number for `append`. Returns None if the copy has all
        batches. Empties a copy that ends below the log's start. Raises `StorageError`.
        """
        source, copy = self.source, self.copy
        if copy.log_end_offset < source.log_start_offset:
            copy.truncate_fully_and_start_at(source.log_start_offset)
        piece = source.read(copy.log_end_offset, bytes_max, end_offset=source.log_end_offset)
        return None if piece is None else (self._cuts, piece)

    def append(self, number: int, batches: bytes) -> None:
        """Appends the bytes of a piece of `next_piece`, unless the log was truncated since. Then raises the copy's start to the log's
        start, or to the copy's end if that is smaller.
        Raises `StorageError`, and `ApiError` for damaged batches.
        """
        if number == self._cuts:
            try:
                self.copy.append_as_follower(memoryview(batches))
            except WireError as error:
                message = f"{self.source.topic_partition}: the log has bytes that are no batches: {error}"
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, message) from None
            start = min(self.source.log_start_offset, self.copy.log_end_offset)
            if start > self.copy.log_start_offset:
                self.copy.advance_log_start(start)

    def unsynced(self) -> tuple[int, list[Syncable]]:
        """Returns the end of the copy, and the files to sync. After the sync the caller calls `copy.mark_flushed(end)`."""
        return self.copy.log_end_offset, self.copy.unflushed_files()

    def replace(self, bytes_max: int) -> str:
        """Copies the rest, at most `bytes_max` at once, and puts the copy in the log's place. Returns the path of the old directory, which
        the caller removes later. Raises `StorageError`; then the next opening finds the old log or the copy. Raises `ApiError` for damaged
        batches of the log, which then stays in its place.
        """
        while (piece := self.next_piece(bytes_max)) is not None:
            self.append(piece[0], piece[1].read())
        self._complete()
        source, copy = self.source, self.copy
        path = source.directory
        old = source.delete()
        source.disk.sync_directory(directory_of(old))
        self.close()
        try:
            copy.rename_to(f"{directory_of(copy.directory)}/{path.rpartition('/')[2]}")
            copy.disk.sync_directory(directory_of(copy.directory))
            copy.disk.remove(f"{copy.directory}/{COPIED_FILE}")
        finally:
            source.take_over(copy)
        return old

    def close(self) -> None:
        """Detaches the copy: truncations of the log no longer reach it."""
        self.source.on_cut = None

    def _complete(self) -> None:
        """Writes the log's producer states and leader epochs to the copy, syncs the copy, and marks it as complete."""
        copy, source = self.copy, self.source
        copy.epochs = source.epochs
        copy.snapshots.remove_above(copy.log_end_offset - 1)
        copy.snapshots.write(copy.log_end_offset, source.producers)
        copy.epochs.write(copy.disk, copy.directory, is_durable=True)
        copy.flush()
        write_atomically(copy.disk, f"{copy.directory}/{COPIED_FILE}", b"")

    def _cut(self, offset: int) -> None:
        """Truncates the copy before the log is truncated to `offset`. A failure makes the copy invalid (`error`), not the log."""
        self._cuts += 1
        try:
            self.copy.truncate_to(offset)
        except StorageError as error:
            self.error = error


def common_end(source: Log, copy: Log) -> int:
    """Returns the end of the batches that two logs of one replica have in common. Equal epochs begin at equal offsets (KIP-101)."""
    end = min(copy.log_end_offset, source.log_end_offset)
    for epoch, start in reversed(copy.epochs.entries()):
        known, known_end = source.epochs.end_offset_for(epoch, source.log_end_offset)
        if known == epoch:
            return min(end, known_end)
        end = min(end, start)
    return end


def is_complete(disk: Disk, directory: str) -> bool:
    """Whether the directory holds a complete copy that was about to replace its log."""
    return disk.exists(f"{directory}/{COPIED_FILE}")


def finish_replacement(disk: Disk, directory: str, path: str) -> None:
    """Gives a complete copy the name of its log. The log's old directory was renamed before."""
    disk.rename(directory, path)
    disk.sync_directory(directory_of(path))
    disk.remove(f"{path}/{COPIED_FILE}")
