"""Decides where the embedded store commits: on the event loop while the disk is fast, in a thread while it is slow.

A commit waits for the disk. If syncs take a fraction of a millisecond, waiting on the loop is cheapest, and the change is answered within
the call. If each of the last `LOOKED_AT` commits took more than `SLOW_NS`, the next one runs in a thread, so that it does not delay all
clients. Commits in a thread are timed too, and the first fast one moves commits back to the loop. A single slow commit, for example while
the machine does other work, changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.base.errors import StorageError
from ottla.base.ports import Clock, Threads

LOOKED_AT = 4
"""Number of last commits that must all be slow. One slow commit says nothing about the disk."""
SLOW_NS = 10_000_000
"""A commit that takes longer is slow, in nanoseconds. 10 ms delay the other clients noticeably."""

Commit = Callable[[], StorageError | None]
"""Commits; returns None or the reason of the failure."""


class CommitPace:
    """Remembers how long the last commits of one store took."""

    def __init__(self, threads: Threads, clock: Clock) -> None:
        self._threads = threads
        self._now_ns = clock.nanoseconds
        self._recent: deque[int] = deque([0] * LOOKED_AT, LOOKED_AT)

    @property
    def is_slow(self) -> bool:
        """Whether the next commit should run in a thread."""
        return min(self._recent) > SLOW_NS

    def run(self, commit: Commit) -> StorageError | None:
        """Commits in the calling thread and records the time."""
        started_ns = self._now_ns()
        error = commit()
        self._recent.append(self._now_ns() - started_ns)
        return error

    def run_in_thread(self, commit: Commit, done: Callable[[StorageError | None], object]) -> None:
        """Commits in a thread, then calls `done` on the loop. Until then the caller starts no other commit."""
        self._threads.run(lambda: self.run(commit), done)
