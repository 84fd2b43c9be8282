"""`ottla snapshot` copies a broker's data as of one moment; `ottla restore` makes data directories from such a copy.

A running broker is suspended (SIGSTOP) while its files are copied, so clients notice a pause. Sealed segments never change and become
hard links where the file system supports them, which keeps the pause short. The copy equals the files that `kill -9` would have left at
that moment. If this process is killed, a second process resumes the broker.

The snapshot has a folder for each log directory and the file `snapshot.json`. That file is written last, so a snapshot without it is
incomplete. Each log directory lists all log directories of its broker (`storage/companion_directories.py`), so a snapshot of some of them
is refused. `snapshot.json` has the ids of the directories, so a restore detects a missing or wrong folder.

Brokers of a cluster are refused, because the copy of one broker would not match the data of the others.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ottla._version import __version__
from ottla.adapters.disk import OsDisk
from ottla.adapters.local_store import FILE_NAME
from ottla.adapters.lock import DirectoryLock
from ottla.adapters.private_files import private
from ottla.base.errors import DirectoryRefused
from ottla.cli.broker.data_directories import PLACE_OPTIONS, directories_of, running_broker
from ottla.cli.broker.running import check_holder
from ottla.cli.command import Args, Refused, command, option
from ottla.cli.render.ottla import Output
from ottla.storage.companion_directories import find_absent
from ottla.storage.small_files import read_meta_properties

MANIFEST = "snapshot.json"
VERSION = 1
PARTIAL_SUFFIX = ".partial"
PROOF_OF_NO_LOSS = ".ottla-boot"
"""This file proves to a broker that no write was lost since the machine started. A snapshot omits it, because the broker writes more
records afterwards."""


@command(
    "snapshot",
    "Copy a broker's data as of one moment, while it serves.",
    option("target", metavar="DIR", help="directory of the snapshot; it must not exist"),
    *PLACE_OPTIONS,
    has_connection=False,
)
def _snapshot(args: Args, output: Output) -> None:
    target = Path(os.path.abspath(args.target))
    directories = [Path(path) for path in directories_of(args)]
    _check(target, directories)
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    try:
        paused_ms = _copy_all(args, directories, partial)
        for number in range(len(directories)):
            (partial / str(number) / PROOF_OF_NO_LOSS).unlink(missing_ok=True)
        manifest = {
            "version": VERSION, "ottla": __version__, "taken": time.time(), "directories": [str(path) for path in directories],
            "directory_ids": [_directory_id(path) for path in directories],
        }  # fmt: skip
        with open(partial / MANIFEST, "x", opener=private) as file:
            file.write(json.dumps(manifest, indent=2) + "\n")
        os.sync()
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    found: dict[str, Any] = {"snapshot": str(target), "bytes": _size(target), "paused_ms": paused_ms}
    pause = "the broker was not running" if paused_ms is None else f"the broker was suspended for {paused_ms} ms"
    output.done(f"Snapshot of {found['bytes']:,} bytes in {target}; {pause}.", found)


def _check(target: Path, directories: list[Path]) -> None:
    """Raises `Refused` if the target exists, or if the directories are not all log directories of a broker outside a cluster."""
    if target.exists():
        raise Refused(f"{target} exists already; a snapshot gets a new directory")
    for path in directories:
        if not path.is_dir():
            raise Refused(f"{path} is not a directory; name the broker's data by --data-dir or --config")
        if target.is_relative_to(path):
            raise Refused(f"{target} is inside the data directory {path}")
    if not (directories[0] / FILE_NAME).exists():
        raise Refused(f"{directories[0]} is empty or a cluster's: brokers of a cluster copy what they lack from each other")
    absent = find_absent(OsDisk(), [str(path) for path in directories])
    if absent is not None:
        raise Refused(f"the broker's log directory {absent.path} is not named; name all of them by log.dirs of --config")


def _directory_id(path: Path) -> str:
    owner = read_meta_properties(OsDisk(), str(path))
    return owner.directory_id if owner is not None else ""


def _copy_all(args: Args, directories: list[Path], partial: Path) -> float | None:
    """Copies all directories as of one moment. Returns how long the broker was suspended, in milliseconds; None if it was not running."""
    from ottla.testing.snapshot import copy_data

    running = running_broker(args)
    if running is None:
        with ExitStack() as locks:
            for path in directories:
                try:
                    locks.callback(DirectoryLock(str(path)).release)
                except DirectoryRefused:
                    raise Refused(f"{path} is in use; stop its broker first") from None
            _copy(copy_data, directories, partial)
        return None
    check_holder(running)
    started = time.perf_counter()
    with _suspended(running.pid):
        _copy(copy_data, directories, partial)
    return round((time.perf_counter() - started) * 1000, 1)


def _copy(copy_data: Any, directories: list[Path], partial: Path) -> None:
    from ottla.testing.snapshot import make_directory

    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        make_directory(directories[0], partial)
        for number, path in enumerate(directories):
            copy_data(path, partial / str(number))
    except OSError as error:
        raise Refused(f"cannot copy to {partial}: {(error.strerror or str(error)).lower()}", "KAFKA_STORAGE_ERROR") from None


@contextmanager
def _suspended(pid: int) -> Iterator[None]:
    """Suspends the broker inside the context. A second process resumes the broker if this process is killed."""
    from ottla.testing.process import resume, suspend

    def stop(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    # The shell waits until the pipe is closed: by `communicate` below, or by the end of this process.
    command = ["/bin/sh", "-c", 'read -r _; kill -CONT "$0"', str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as guard:
        try:
            suspend(pid)
            yield
        finally:
            resume(pid)
            signal.signal(signal.SIGTERM, before)
            guard.communicate()


@command(
    "restore",
    "Create a data directory from a snapshot.",
    option("source", metavar="DIR", help="the snapshot; it is not changed"),
    *PLACE_OPTIONS,
    has_connection=False,
)
def _restore(args: Args, output: Output) -> None:
    from ottla.testing.snapshot import copy_data

    source = Path(os.path.abspath(args.source))
    manifest = _manifest(source)
    kept = manifest["directories"]
    directories = [Path(path) for path in directories_of(args)]
    if len(kept) != len(directories):
        raise Refused(f"log directories: {len(kept)} in the snapshot, {len(directories)} here; name as many by log.dirs of --config")
    for path in directories:
        if path.exists() and any(path.iterdir()):
            raise Refused(f"{path} is not empty; restore to an empty directory, or run `ottla reset` before")
    for number, directory_id in enumerate(manifest.get("directory_ids", ())):
        if _directory_id(source / str(number)) != directory_id:
            what = f"the copy of {kept[number]} (directory.id={directory_id})"
            raise Refused(f"{source / str(number)} is not {what}: the snapshot is not whole")
    for number, path in enumerate(directories):
        if path.exists():
            path.rmdir()
        copy_data(source / str(number), path)
    os.sync()
    found = {"restored": [str(path) for path in directories], "bytes": sum(map(_size, directories))}
    output.done(f"Restored {found['bytes']:,} bytes to {', '.join(map(str, directories))}.", found)


def _manifest(source: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((source / MANIFEST).read_text())
    except (OSError, ValueError):
        raise Refused(f"{source} is not a whole snapshot: it has no {MANIFEST}") from None
    if manifest.get("version") != VERSION:
        raise Refused(f"{source} is a snapshot of version {manifest.get('version')}, this program reads version {VERSION}")
    return manifest


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
