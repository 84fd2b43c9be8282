"""Copies the data of a running broker while it is suspended.

The broker writes each batch with one call, and its process is suspended during the copy. The copy is therefore what `kill -9` would leave
at that moment, and a broker recovers it as after a crash. A copy made while the broker runs could have a transaction's end but not the
markers before it.

Permissions are copied, and by root also owners, because the files hold records and keys of passwords.

Sealed segments never change, so they are hard-linked if the file system supports it. Each partition's last segment and small files are
copied. Locks, temporary files and deleted partitions are not copied. A snapshot can be used any number of times, because each start works
on a copy of it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from ottla.adapters.private_files import private
from ottla.testing.process import resume, suspend
from ottla.testing.reaper import temporary_directory

SEGMENT_SUFFIX = ".log"
LEFT_OUT = (".lock", ".compaction.lock", ".probe")
LEFT_OUT_SUFFIXES = ("-shm", ".deleted", ".tmp", ".cleaned")
"""Compaction runs in another process, which is not suspended: its files end in `.cleaned` until the broker installs them."""
COPY_BYTES = 1 << 30


def new_snapshot(path: str | Path | None) -> Path:
    """Returns the place for a snapshot: `path`, or a new directory that is removed when this process ends."""
    return Path(path).resolve() if path is not None else temporary_directory("ottla-snapshot-") / "data"


def take_snapshot(pid: int, data_dir: Path, target: Path, *, is_suspended: bool = False) -> Path:
    """Copies the data of the broker that runs as `pid` to `target`, which must not exist. Suspends the broker during the copy. A broker
    that was already suspended stays suspended.
    """
    if is_suspended:
        return copy_data(data_dir, target)
    suspend(pid)
    try:
        return copy_data(data_dir, target)
    finally:
        resume(pid)


def copy_data(source: Path, target: Path) -> Path:
    """Copies a data directory that no process writes to. Returns `target`. Raises `FileExistsError` if `target` exists."""
    target.parent.mkdir(parents=True, exist_ok=True)
    make_directory(source, target)
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.endswith("-delete"):
                _copy_partition(Path(entry.path), target / entry.name)
        elif not _is_left_out(entry.name):
            _copy_file(entry.path, target / entry.name)
    return target


def _copy_partition(source: Path, target: Path) -> None:
    make_directory(source, target)
    names = sorted(os.listdir(source))
    segments = [name for name in names if name.endswith(SEGMENT_SUFFIX)]
    sealed = frozenset(segments[:-1])
    for name in names:
        if name in sealed:
            _link(source / name, target / name)
        elif not _is_left_out(name):
            _copy_file(source / name, target / name)


def make_directory(source: Path, target: Path) -> None:
    """Makes the directory `target` with the permissions of `source` and, as root, its owner."""
    target.mkdir(0o700)
    found = source.stat()
    target.chmod(stat.S_IMODE(found.st_mode))
    if os.geteuid() == 0:
        os.chown(target, found.st_uid, found.st_gid)


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.endswith(LEFT_OUT_SUFFIXES)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        _copy_file(source, target)


def _copy_file(source: str | Path, target: Path) -> None:
    """Copies a file in the kernel if possible; on some file systems the copy then shares the blocks."""
    with open(source, "rb") as reading, open(target, "xb", opener=private) as writing:
        found = os.fstat(reading.fileno())
        os.fchmod(writing.fileno(), stat.S_IMODE(found.st_mode))
        if os.geteuid() == 0:
            os.fchown(writing.fileno(), found.st_uid, found.st_gid)
        try:
            if not hasattr(os, "copy_file_range"):
                raise OSError
            while os.copy_file_range(reading.fileno(), writing.fileno(), COPY_BYTES):
                pass
        except OSError:
            reading.seek(0)
            writing.seek(0)
            shutil.copyfileobj(reading, writing)
