"""Production threads and worker processes: fsync, checkpoints, removal of files, compaction. Results are delivered on the event loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ottla.base.ports import Worker

T = TypeVar("T")

THREADS_MAX = 5
STOP_THREADS_MAX = 32
"""Threads that sync files at a stop. They share the flushes of the disk: 12,000 files took 4.5 s with 5 threads and 1.0 s with 32."""


class LoopThreads:
    """`ports.Threads`: a small pool that belongs to one loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._threads_max = THREADS_MAX
        self._pool: ThreadPoolExecutor | None = None
        self._narrow_pool: ThreadPoolExecutor | None = None
        self._is_closed = False

    def run(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Runs `work` in a thread, then `done(result)` on the loop. An exception of `work` is passed to the loop's exception handler.

        After `close` it does nothing, because a timer may still fire during the stop.
        """
        if self._is_closed:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads_max, "ottla")
        future = self._pool.submit(work)
        future.add_done_callback(lambda finished: self._return(finished, done))

    def widen(self) -> None:
        """Uses a larger pool for later work. The smaller one finishes its work. Only the first call does something."""
        if self._threads_max == THREADS_MAX:
            self._threads_max = STOP_THREADS_MAX
            self._narrow_pool, self._pool = self._pool, None

    def worker(self, module: str) -> Worker:
        from ottla.adapters.worker_process import WorkerProcess  # imported here, because most brokers need no worker

        return WorkerProcess(module)

    def close(self) -> None:
        """Waits for all work that was given to `run` before. Later calls of `run` do nothing."""
        self._is_closed = True
        for pool in (self._narrow_pool, self._pool):
            if pool is not None:
                pool.shutdown()

    def _return(self, finished: Future[T], done: Callable[[T], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, finished, done)

    def _deliver(self, finished: Future[Any], done: Callable[[Any], object]) -> None:
        done(finished.result())
