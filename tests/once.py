"""What all workers of a run need is made by one of them, while the others wait."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def one_at_a_time(directory: Path) -> Iterator[bool]:
    """Holds the directory's lock; the directory is made if it does not exist. Yields whether another process held the lock before: it may
    have made what is needed, or have failed to. The lock of a process that dies is released.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            has_waited = False
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_EX)
            has_waited = True
        yield has_waited
