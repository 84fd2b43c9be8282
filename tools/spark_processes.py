"""Ends the processes of a Spark application, which are child processes of other processes."""

from __future__ import annotations

import time
from collections.abc import Collection

import psutil


def kill_and_wait(processes: Collection[psutil.Process], seconds: float) -> None:
    """Kills the running processes with -9 and waits until all have ended, at most `seconds`.

    psutil waits for a descriptor of the process (pidfd_open), and Linux returns ENOENT for it while the process is just ending. psutil 7.2
    raises FileNotFoundError for this, or NoSuchProcess if the process has ended since. The process ends a moment later.
    """
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        try:
            psutil.wait_procs(list(processes), timeout=left)
        except (FileNotFoundError, psutil.NoSuchProcess):
            continue
        return
