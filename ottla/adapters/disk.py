"""Production disk: files by descriptor, read and written at explicit positions. A failure raises `DiskError` with one sentence; only `open`
of a missing file raises FileNotFoundError.

Positions are explicit (pread and pwrite), so reads on the loop and a sync in a thread share a descriptor without a lock. Short reads and
writes are continued, so a call handles all of its bytes or raises an error; only a read at the end of the file returns fewer. A read that
fails with EIO raises `DamagedLogError` instead, because the bytes around the unreadable ones may be intact. After a failed sync the kernel
may have dropped the dirty pages, and would report success the next time. Therefore a file remembers the failure and refuses every later
sync. Creating, renaming or removing a file is durable only after `sync_directory` of its directory; the caller decides when to pay for
that. The module needs POSIX. It keeps no buffers in the process, because the page cache buffers.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from mmap import mmap

from ottla.base.errors import DamagedLogError, DiskError, StorageError

_OPEN_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
# The permissions of new files, reduced by the process's umask, which a broker sets to `ottla.umask`.
_FILE_MODE = 0o666
_DIRECTORY_MODE = 0o777
# fdatasync does not write the modification time to the journal, but makes the size of a file durable that has grown.
_sync_descriptor = getattr(os, "fdatasync", os.fsync)
SYNCFS_REPORTS_FAILURES = (5, 8)
"""The first version of Linux whose syncfs fails if a write to the file system has failed."""


def _failed(action: str, path: str, error: OSError) -> DiskError:
    return DiskError(f"cannot {action} {path}: {error.strerror or error}", path)


def _unread(length: int, position: int, path: str, error: OSError) -> StorageError:
    """Returns the error of a failed read: `DamagedLogError` for EIO, which concerns only these bytes, else `DiskError`."""
    message = f"cannot read {length} bytes at {position} of {path}: {error.strerror or error}"
    return (DamagedLogError if error.errno == errno.EIO else DiskError)(message, path)


class OsFile:
    """An open file. `close` may be called twice. No other method may be called after it."""

    __slots__ = ("_descriptor", "_sync_failure", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._sync_failure: str | None = None

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise _failed("look at", self.path, error) from error

    def pread(self, length: int, position: int) -> bytes:
        assert length >= 0 and position >= 0, f"read of {length} bytes at {position} of {self.path}"
        try:
            data = os.pread(self._descriptor, length, position)
            if len(data) == length or not data:
                return data
            return self._read_rest(data, length, position)
        except OSError as error:
            raise _unread(length, position, self.path, error) from error

    def _read_rest(self, data: bytes, length: int, position: int) -> bytes:
        """Continues a short read. Signals and the limit of 2 GiB shorten reads too, so only an empty read means the end of the file."""
        pieces = [data]
        have = len(data)
        while have < length:
            piece = os.pread(self._descriptor, length - have, position + have)
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        return b"".join(pieces)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        assert position >= 0, f"read at {position} of {self.path}"
        try:
            have, size = os.preadv(self._descriptor, [buffer], position), len(buffer)
            while 0 < have < size:
                more = os.preadv(self._descriptor, [memoryview(buffer)[have:]], position + have)
                if not more:
                    break
                have += more
            return have
        except OSError as error:
            raise _unread(len(buffer), position, self.path, error) from error

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        assert position >= 0, f"write at {position} of {self.path}"
        try:
            written = os.pwrite(self._descriptor, data, position)
            size = len(data)
            while written < size:
                written += os.pwrite(self._descriptor, memoryview(data)[written:], position + written)
        except OSError as error:
            raise _failed(f"write {len(data)} bytes at {position} of", self.path, error) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise _failed(f"truncate to {size} bytes", self.path, error) from error

    def sync(self) -> None:
        if self._sync_failure is not None:
            why = f"an earlier sync failed ({self._sync_failure}), what was written may be gone"
            raise DiskError(f"cannot sync {self.path}: {why}", self.path)
        try:
            _sync_descriptor(self._descriptor)
        except OSError as error:
            self._sync_failure = error.strerror or str(error)
            raise _failed("sync", self.path, error) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            os.close(descriptor)
        except OSError as error:
            raise _failed("close", self.path, error) from error


class OsDisk:
    """`ports.Disk` on this machine's file systems."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        try:
            return OsFile(path, os.open(path, _OPEN_FLAGS | (os.O_CREAT if create else 0), _FILE_MODE))
        except FileNotFoundError as error:
            if create:
                raise _failed("create", path, error) from error
            raise
        except OSError as error:
            raise _failed("open", path, error) from error

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _failed("look at", path, error) from error
        return True

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise _failed("list", path, error) from error

    def makedirs(self, path: str) -> None:
        try:
            os.makedirs(path, _DIRECTORY_MODE, exist_ok=True)
        except OSError as error:
            raise _failed("create the directory", path, error) from error

    def rename(self, old: str, new: str) -> None:
        try:
            os.replace(old, new)
        except OSError as error:
            raise _failed(f"rename {old} to", new, error) from error

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed("remove", path, error) from error

    def remove_tree(self, path: str) -> None:
        """Removes a directory with everything in it. Does nothing if it does not exist."""
        from shutil import rmtree  # shutil imports three compression modules, which would delay a broker's start

        try:
            rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed("remove", path, error) from error

    def sync_directory(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _failed("sync the directory", path, error) from error

    def sync_file_systems(self, paths: Iterable[str]) -> bool:
        import ctypes  # imported here, because only a stop with many changed logs needs it

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            return False
        for path in {_device_of(path): path for path in paths}.values():
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except OSError as error:
                raise _failed("open", path, error) from error
            try:
                if syncfs(descriptor):
                    number = ctypes.get_errno()
                    raise _failed("sync the file system of", path, OSError(number, os.strerror(number)))
            finally:
                os.close(descriptor)
        return _are_failures_reported(os.uname().release)

    def map_cells(self, path: str) -> memoryview:
        try:
            descriptor = os.open(path, _OPEN_FLAGS)
            try:
                return memoryview(mmap(descriptor, 0)).cast("q")
            finally:
                os.close(descriptor)
        except (OSError, ValueError, TypeError) as error:  # ValueError: an empty file; TypeError: a size that is no multiple of 8
            raise DiskError(f"cannot map {path}: {error}", path) from error

    def free_bytes(self, path: str) -> tuple[int, int]:
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise _failed("ask for the free space of", path, error) from error
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _device_of(path: str) -> int:
    try:
        return os.stat(path).st_dev
    except OSError as error:
        raise _failed("look at", path, error) from error


def _are_failures_reported(release: str) -> bool:
    """Whether syncfs reports failures in this release of Linux ("5.10.0-8-amd64")."""
    return tuple(map(int, re.findall(r"\d+", release)[:2])) >= SYNCFS_REPORTS_FAILURES
