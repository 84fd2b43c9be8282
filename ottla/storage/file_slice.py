"""The result of reading a log: a range of a file instead of its bytes. A channel sends it with sendfile, or reads it in bounded pieces.

A slice keeps its file open: `SharedFile` closes the descriptor when its last holder is freed. So a segment may be evicted, deleted or
renamed while a slow consumer still reads it. There is no manual reference count. When too many files are held in this way, a slice is a
small copy (`BytesFile`).

A group commit syncs `PathSync` and `DirectorySync` as well as `SharedFile`, from any thread.

A slice is not protected from truncation. If a follower cuts the log, reading the slice returns too few bytes, which the reader must treat
as a lost connection. `OpenFiles.on_short` is called, because the file may be damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.base.ports import Disk, File, Slice

SMALL_BYTES = 16 << 10
"""The records of a small answer are read when it is made, and its channel sends all of it by one call. That saved 13 % of the instructions
of a Fetch of one record. Records of larger answers stay slices, because a client may let many answers wait."""


class Syncable(Protocol):
    """A file or directory that a group commit syncs, perhaps in a thread."""

    def sync(self) -> None: ...


class CountedFiles(Protocol):
    """The part of `open_files.OpenFiles` that is used here."""

    alive: set[int]
    on_short: Callable[[str], object]


class SharedFile:
    """An open file that closes itself when its last holder is freed."""

    __slots__ = ("file", "open_files")

    def __init__(self, file: File, open_files: CountedFiles | None = None) -> None:
        self.file = file
        self.open_files = open_files
        if open_files is not None:
            open_files.alive.add(id(self))

    def __del__(self) -> None:
        self.file.close()
        if self.open_files is not None:
            self.open_files.alive.discard(id(self))  # one atomic call, because a thread of a group commit may run it

    def sync(self) -> None:
        self.file.sync()


class PathSync:
    """Syncs a file by its name, for files that are not kept open (indexes, checkpoints). A missing file needs no sync."""

    __slots__ = ("disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    def sync(self) -> None:
        try:
            file = self.disk.open(self.path)
        except FileNotFoundError:
            return
        try:
            file.sync()
        finally:
            file.close()


class DirectorySync:
    """Makes the names in a directory durable; a directory that was renamed meanwhile needs no sync under its old name."""

    __slots__ = ("disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    def sync(self) -> None:
        if self.disk.exists(self.path):
            self.disk.sync_directory(self.path)


class BytesFile:
    """Implements `ports.File` with a few bytes in memory. It can only be read."""

    __slots__ = ("_data", "path")

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self.path = path

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return len(self._data)

    def pread(self, length: int, position: int) -> bytes:
        return self._data[position : position + length]

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        piece = self._data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        raise AssertionError(f"a write of {len(data)} bytes at {position} to a copy of {self.path}")

    def truncate(self, size: int) -> None:
        raise AssertionError(f"a truncation to {size} of a copy of {self.path}")

    def sync(self) -> None: ...

    def close(self) -> None: ...


class FileSlice(Slice):
    """`length` bytes of a file from `position`."""

    __slots__ = ("length", "position", "shared")

    def __init__(self, shared: SharedFile, position: int, length: int) -> None:
        self.shared = shared
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        """Returns the descriptor for sendfile, or -1 for a copy in memory and on a disk without descriptors."""
        return self.shared.file.fileno()

    def read(self) -> bytes:
        return self.shared.file.pread(self.length, self.position)

    def read_part(self, start: int, length: int) -> bytes:
        """Returns up to `length` bytes from `start` within the slice. Raises `StorageError`."""
        return self.shared.file.pread(min(length, self.length - start), self.position + start)

    def read_piece(self, start: int, length: int) -> bytes:
        """Like `read_part`, but raises `OSError`, which a channel expects."""
        try:
            return self.read_part(start, length)
        except StorageError as error:
            raise OSError(str(error)) from error

    def at_hand(self, bytes_max: int) -> bytes | FileSlice:
        """Returns the bytes if they are in memory, or if they are at most `bytes_max` bytes, which are read now. Otherwise returns the
        slice, also if the bytes cannot be read: then the channel that sends the slice handles the failure."""
        if self.length <= bytes_max:
            try:
                data = self.read()
            except StorageError:
                return self
            if len(data) == self.length:
                return data
        return self

    def failed(self) -> None:
        if self.shared.open_files is not None:
            self.shared.open_files.on_short(self.shared.file.path)


class LatestBatch(FileSlice):
    """A batch that was just appended, with its bytes in memory."""

    __slots__ = ("base_offset", "data")

    def __init__(self, shared: SharedFile, position: int, data: bytes, base_offset: int) -> None:
        self.shared = shared
        self.position = position
        self.length = len(data)
        self.data = data
        self.base_offset = base_offset

    def at_hand(self, bytes_max: int) -> bytes | FileSlice:
        return self.data
