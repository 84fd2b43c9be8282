"""The process that compacts: takes a `CompactionJob`, writes the `.cleaned` segments, returns a `CompactionResult`.

`compaction_schedule.py` runs it through `adapters/worker_process.py`. It holds `.compaction.lock` in the log directory while it works, so
one worker at a time writes there: the worker of a broker that was just killed ends before another begins.
`log.cleaner.io.max.bytes.per.second` limits its reads and writes.
"""

from __future__ import annotations

import time

from ottla.adapters.disk import OsDisk, OsFile
from ottla.adapters.lock import DirectoryLock
from ottla.adapters.worker_process import serve
from ottla.base.errors import DirectoryRefused, StorageError
from ottla.storage.segment_rewriter import Answer, Failed, Order, compact, remove_cleaned

LOCK_FILE = ".compaction.lock"
LOCK_SECONDS_MAX = 10.0
LOCK_POLL_SECONDS = 0.02


class Pace:
    """Sleeps to keep the rate of reads and writes below `bytes_per_second`."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_at = time.monotonic()

    def spend(self, size: int) -> None:
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + size / self._bytes_per_second
        if self._free_at > now:
            time.sleep(self._free_at - now)


class PacedDisk(OsDisk):
    """The disk of one job, with a limited rate of reads and writes."""

    __slots__ = ("_pace",)

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return PacedFile(super().open(path, create=create), self._pace)


class PacedFile(OsFile):
    __slots__ = ("_pace",)

    def __init__(self, file: OsFile, pace: Pace) -> None:
        super().__init__(file.path, file.fileno())
        self._pace = pace

    def pread(self, length: int, position: int) -> bytes:
        data = super().pread(length, position)
        self._pace.spend(len(data))
        return data

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        size = super().pread_into(buffer, position)
        self._pace.spend(size)
        return size

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._pace.spend(len(data))
        super().pwrite(data, position)


def perform(order: Order) -> Answer:
    """Runs one job. After a failure it removes its files, as far as the disk permits."""
    job = order.job
    disk = PacedDisk(Pace(order.bytes_per_second))
    try:
        lock = wait_for_lock(job.directory.rpartition("/")[0])
    except StorageError as error:
        return Failed(reason=str(error))
    try:
        return compact(disk, job)
    except StorageError as error:
        remove_what_is_left(disk, job.directory)
        return Failed(reason=str(error))
    finally:
        lock.release()


def remove_what_is_left(disk: OsDisk, directory: str) -> None:
    try:
        remove_cleaned(disk, directory)
    except StorageError:
        pass  # The disk fails. The next round or the next start removes the files.


def wait_for_lock(directory: str) -> DirectoryLock:
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            return DirectoryLock(directory, LOCK_FILE)
        except DirectoryRefused:
            if time.monotonic() > deadline:
                raise
        time.sleep(LOCK_POLL_SECONDS)


def main() -> None:
    serve(perform)
