"""Allows one process per directory, by a lock on a file. The system releases the lock when the process ends, however it ends."""

from __future__ import annotations

import os

from ottla.base.errors import DirectoryRefused, DiskError

LOCK_FILE = ".lock"


class DirectoryLock:
    """Holds the lock on `.lock` (or `file_name`) in a directory. Raises `DirectoryRefused` if the system refuses the lock, usually because
    another process holds it. Raises `DiskError` if the file cannot be opened or written.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, directory: str, file_name: str = LOCK_FILE) -> None:
        self._path = f"{directory}/{file_name}"
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise DiskError(f"cannot open {self._path}: {error.strerror}", directory) from error
        try:
            lock(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            raise DirectoryRefused(
                f"{directory} is in use by another process, usually a broker; stop it first, or use another log.dirs", directory
            ) from error
        # The process id of the holder, for `ottla stop` and `ottla status`.
        try:
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, b"%d\n" % os.getpid())
        except OSError as error:  # for example, the disk is full
            self.release()
            raise DiskError(f"cannot write {self._path}: {error.strerror}", directory) from error

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def lock(descriptor: int) -> None:
    """Takes an exclusive lock without waiting; raises `OSError` if it is held."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
