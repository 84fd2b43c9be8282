"""One file of staged chunks, which belong to no log yet: appended one after another, read by position, never synced.

The files are beside the checkpoints in the log directory itself. (Kafka takes every directory there for a partition and ignores unknown
files.) After the process has ended, its files are worthless: `sweep` removes them.
"""

from __future__ import annotations

from ottla.base.errors import StorageError
from ottla.base.ports import Disk

SUFFIX = ".ottla-staged"


class StageFile:
    """A file that is made by its first chunk."""

    __slots__ = ("_disk", "path", "size_bytes")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.size_bytes = 0

    def append(self, chunk: bytes | bytearray | memoryview) -> int:
        """Writes a chunk behind the last one and returns its position. After a `StorageError` the next one takes its place."""
        file = self._disk.open(self.path, create=True)
        try:
            file.pwrite(chunk, self.size_bytes)
        finally:
            file.close()
        position = self.size_bytes
        self.size_bytes += len(chunk)
        return position

    def read(self, position: int, buffer: memoryview) -> int:
        """Fills the buffer with the bytes of a chunk and returns their number, fewer where the file was cut. Raises `StorageError`."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            raise StorageError(f"{self.path} is gone", self.path) from None
        try:
            return file.pread_into(buffer, position)
        finally:
            file.close()


def sweep(disk: Disk, directory: str) -> int:
    """Removes what an earlier process has left in a log directory; returns the number of files."""
    left = [name for name in disk.listdir(directory) if name.endswith(SUFFIX)]
    for name in left:
        disk.remove(f"{directory}/{name}")
    return len(left)
