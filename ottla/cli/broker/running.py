"""Finds the broker that runs in a data directory (its process and address) and stops it.

A broker holds a lock on the file `.lock` of each of its directories until it ends. The file contains the broker's process id, and its
address once it is ready. On systems with `/proc`, a signal is sent only to a process that has this file open: a process id from another
machine or container can therefore not be the reason that an unrelated process gets the signal.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

from ottla.adapters.lock import LOCK_FILE, DirectoryLock
from ottla.base.errors import DirectoryRefused, StorageError
from ottla.cli.command import Refused

POLL_S = 0.02


class Running(NamedTuple):
    """The broker of a directory. `address` is empty until the broker is ready; `pid` is -1 if the lock file has none."""

    directory: str
    pid: int
    address: str
    started_s: float


def note_address(directories: list[str], address: str) -> None:
    """Writes this process's id and address into the lock file of each directory. Skips directories that cannot be written."""
    for directory in directories:
        try:
            with open(os.path.join(directory, LOCK_FILE), "w", encoding="ascii") as file:
                file.write(f"{os.getpid()} {address}\n")
        except OSError:
            continue  # the directory is offline


def find(directory: str) -> Running | None:
    """Returns the broker that holds the directory's lock, or None. Raises `Refused` if this user may not read the directory."""
    path = os.path.join(directory, LOCK_FILE)
    try:
        os.stat(path)
    except PermissionError:
        raise Refused(f"{directory} may not be read by this user; ask as the broker's user") from None
    except OSError:
        return None
    if not _is_held(directory):
        return None
    with open(path, encoding="ascii", errors="replace") as file:
        words = file.read().split()
    pid = int(words[0]) if words and words[0].isdecimal() else -1
    return Running(directory, pid, words[1] if len(words) > 1 else "", os.stat(path).st_mtime)


def _is_held(directory: str) -> bool:
    path = os.path.join(directory, LOCK_FILE)
    before = os.stat(path)
    try:
        lock = DirectoryLock(directory)
    except DirectoryRefused:
        return True
    except StorageError as error:
        raise Refused(str(error)) from None
    lock.release()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return False


def stop(running: Running, timeout_s: float) -> None:
    """Sends SIGTERM and waits until the broker has ended or released the directory. Raises `Refused` after the timeout, or if the process
    belongs to another user or is not the lock's holder."""
    check_holder(running)
    try:
        os.kill(running.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise Refused(f"process {running.pid} belongs to another user; stop it as that user") from None
    deadline = time.monotonic() + timeout_s
    while _is_alive(running.pid) and find(running.directory) is not None:
        if time.monotonic() > deadline:
            raise Refused(f"process {running.pid} still runs after {timeout_s:g} s; wait, or end it with kill -9", "REQUEST_TIMED_OUT")
        time.sleep(POLL_S)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def check_holder(running: Running) -> None:
    """Raises `Refused` unless the process of `running.pid` has the lock file open. Without `/proc`, checks only that the process exists."""
    elsewhere = f"{running.directory} is in use by a process that cannot be seen from here: in another container, or on another machine"
    if running.pid <= 0 or not _is_alive(running.pid):
        raise Refused(elsewhere)
    descriptors = f"/proc/{running.pid}/fd"
    if not os.path.isdir("/proc/self/fd"):
        return
    try:
        names = os.listdir(descriptors)
    except PermissionError:
        raise Refused(f"process {running.pid} belongs to another user; stop it as that user") from None
    except FileNotFoundError:
        return  # it has just ended
    path = os.path.realpath(os.path.join(running.directory, LOCK_FILE))
    if not any(_target(os.path.join(descriptors, name)) == path for name in names):
        raise Refused(elsewhere)


def _target(link: str) -> str:
    """Returns the path that a descriptor refers to; an empty text if the descriptor has been closed."""
    try:
        return os.readlink(link)
    except OSError:
        return ""
