"""Where the embedded store commits: on the loop while the disk is fast, in a thread while it is slow.

A commit waits for the disk. On one that syncs in a fraction of a millisecond the loop is best served by waiting: a change is answered with
the call. Where the last `LOOKED_AT` commits took more than `SLOW_NS` each, all clients would wait for every change of any, so the next one
is made by a thread. Those are timed as well: with the first quick one commits return to the loop. One that took long because the machine
did other work changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.base.errors import StorageError
from ottla.base.ports import Clock, Threads

LOOKED_AT = 4
SLOW_NS = 10_000_000

Commit = Callable[[], StorageError | None]
"""Commits; returns why that failed."""


class CommitPace:
    """How long the last commits of one store took."""

    def __init__(self, threads: Threads, clock: Clock) -> None:
        self._threads = threads
        self._now_ns = clock.nanoseconds
        self._recent: deque[int] = deque([0] * LOOKED_AT, LOOKED_AT)

    @property
    def is_slow(self) -> bool:
        return min(self._recent) > SLOW_NS

    def run(self, commit: Commit) -> StorageError | None:
        """Commits, wherever it is called."""
        started_ns = self._now_ns()
        error = commit()
        self._recent.append(self._now_ns() - started_ns)
        return error

    def run_in_thread(self, commit: Commit, done: Callable[[StorageError | None], object]) -> None:
        """Commits in a thread, then calls `done` on the loop; nothing else may use the pace meanwhile."""
        self._threads.run(lambda: self.run(commit), done)
