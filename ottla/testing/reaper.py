"""Ends the brokers of a test process and removes its temporary directories when that process has died, however it died.

A process that was killed by `kill -9` cannot clean up. A second process, the reaper (`reaper_process.py`), therefore does that. The reaper
starts with the first broker, ZooKeeper or temporary directory. It reads from a pipe whose write end only the test process has; the system
closes the write end when the test process ends. Brokers and ZooKeepers have the reaper's token in their environment, so that the reaper
finds them. After a normal end of the test process it ends the remaining processes and removes the remaining directories.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from ottla.testing.reaper_process import TOKEN_VARIABLE

SCRIPT = Path(__file__).with_name("reaper_process.py")


class Reaper:
    """One reaper process. It waits for the end of this process or for `close`, and then for the end of the process `after_pid`."""

    def __init__(self, token: str = "", *, after_pid: int = 0) -> None:
        self.token = token or uuid.uuid4().hex
        self._owner_pid = os.getpid()
        reading, self._pipe = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SCRIPT), self.token, str(after_pid)],
            stdin=reading, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={name: text for name, text in os.environ.items() if name != TOKEN_VARIABLE},
        )  # fmt: skip
        os.close(reading)
        self.pid = process.pid
        process.returncode = 0  # the reaper outlives this process, and Popen must not warn of that

    @property
    def environment(self) -> dict[str, str]:
        """The environment variable that lets the reaper find a process."""
        return {TOKEN_VARIABLE: self.token}

    def add_directory(self, path: Path) -> None:
        """Registers a directory that the reaper is to remove; called before the directory is created."""
        self._write("+directory", path)

    def forget_directory(self, path: Path) -> None:
        self._write("-directory", path)

    def add_process(self, pid: int) -> None:
        """Registers a process that the reaper is to kill. Only systems without /proc need this call; elsewhere the environment variable is
        sufficient."""
        self._write("+process", pid)

    def forget_process(self, pid: int) -> None:
        self._write("-process", pid)

    def close(self) -> None:
        """Starts the reaper's work: now, or when the other process ends."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _write(self, kind: str, what: object) -> None:
        """Writes one line to the reaper in one call. Does nothing in a forked child, and after the reaper has died."""
        if self._pipe < 0 or os.getpid() != self._owner_pid:
            return
        try:
            os.write(self._pipe, os.fsencode(f"{kind} {what}\n"))
        except BrokenPipeError:
            self.close()  # the reaper was killed, so only this process cleans up now


_of_this_process: list[Reaper] = []
_directories: set[Path] = set()
"""The temporary directories that this process has made, not the ones of a parent that it was forked from."""


def reaper() -> Reaper:
    """Returns this process's reaper, and starts it on first use."""
    if not _of_this_process:
        _of_this_process.append(Reaper())
    return _of_this_process[0]


def temporary_directory(prefix: str) -> Path:
    """Makes a directory that is removed when this process ends."""
    path = Path(tempfile.gettempdir(), prefix + uuid.uuid4().hex).resolve()
    reaper().add_directory(path)
    _directories.add(path)
    path.mkdir(mode=0o700)
    return path


def remove_directory(path: Path) -> None:
    """Removes a temporary directory before the end of this process. A forked child does not remove the directories of its parent."""
    if path in _directories:
        _directories.discard(path)
        shutil.rmtree(path, ignore_errors=True)
        reaper().forget_directory(path)


def _drop() -> None:
    """Closes a forked child's copy of the pipe. Otherwise the reaper would wait for the child when its parent has died."""
    for inherited in _of_this_process:
        inherited.close()
    _of_this_process.clear()
    _directories.clear()


os.register_at_fork(after_in_child=_drop)
