"""A file of staged chunks, which are not in a log yet. They are appended one after another, read by position, and never synced.

The files are beside the checkpoints in the log directory itself. (Kafka takes every directory there for a partition and ignores unknown
files.) The files are useless after the process has ended; `sweep` removes them.
"""

from __future__ import annotations

from ottla.base.errors import StorageError
from ottla.base.ports import Disk

SUFFIX = ".ottla-staged"


class StageFile:
    """A file that the first chunk creates."""

    __slots__ = ("_disk", "path", "size_bytes")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.size_bytes = 0

    def append(self, chunk: bytes | bytearray | memoryview) -> int:
        """Writes a chunk after the last one and returns its position. Raises `StorageError`; the next chunk then overwrites the failed
        one.
        """
        file = self._disk.open(self.path, create=True)
        try:
            file.pwrite(chunk, self.size_bytes)
        finally:
            file.close()
        position = self.size_bytes
        self.size_bytes += len(chunk)
        return position

    def read(self, position: int, buffer: memoryview) -> int:
        """Fills the buffer with bytes from `position` on and returns their number, fewer if the file is shorter. Raises `StorageError`."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            raise StorageError(f"{self.path} is gone", self.path) from None
        try:
            return file.pread_into(buffer, position)
        finally:
            file.close()


def sweep(disk: Disk, directory: str) -> int:
    """Removes the files of earlier processes from a log directory. Returns their number."""
    left = [name for name in disk.listdir(directory) if name.endswith(SUFFIX)]
    for name in left:
        disk.remove(f"{directory}/{name}")
    return len(left)
