"""Production threads and worker processes, for example for fsync, checkpoints, removal of files and compaction. Results are delivered on
the event loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ottla.base.ports import Worker

T = TypeVar("T")

THREADS_MAX = 5


class LoopThreads:
    """`ports.Threads`: a small pool that belongs to one loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False

    def run(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Runs `work` in a thread, then `done(result)` on the loop. An exception of `work` is passed to the loop's exception handler.

        After `close` it does nothing, because a timer may still fire during the stop.
        """
        if self._is_closed:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS_MAX, "ottla")
        future = self._pool.submit(work)
        future.add_done_callback(lambda finished: self._return(finished, done))

    def worker(self, module: str) -> Worker:
        from ottla.adapters.worker_process import WorkerProcess  # imported here, because most brokers need no worker

        return WorkerProcess(module)

    def close(self) -> None:
        """Waits for all work that was given to `run` before. Later calls of `run` do nothing."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown()

    def _return(self, finished: Future[T], done: Callable[[T], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, finished, done)

    def _deliver(self, finished: Future[Any], done: Callable[[Any], object]) -> None:
        done(finished.result())
