"""The simulated machine of one process of a broker: a disk whose power can be cut, and timers and threads that end with the process. The
power is cut right after an operation on the disk, also in the middle of a request. From then on the old process has no effect: its disk
refuses operations, its timers do not fire, and its sent bytes are lost.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from ottla.base.errors import OttlaError
from ottla.base.ports import Worker
from tests.fakes.disk import MemDisk
from tests.fakes.threads import RecordWorker
from tests.fakes.timers import ManualTimers

Result = TypeVar("Result")
THREAD_MS = (0, 25)
AT_ONCE_MS = (0, 0)


class RaisingHandler(logging.Handler):
    """Fails the run if a broker logs an error, which means an unexpected exception in a handler or of a disk. In a cluster disks, peers and
    stores may fail; then only other exceptions fail the run.
    """

    def __init__(self, *, is_of_cluster: bool) -> None:
        super().__init__(logging.ERROR)
        self._is_of_cluster = is_of_cluster

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not self._is_of_cluster or (error is not None and not isinstance(error, OttlaError)):
            raise AssertionError(record.getMessage()) from error


@contextmanager
def failures_raised(*, is_of_cluster: bool = False) -> Iterator[None]:
    """Makes errors in a broker's log fail the run, and hides warnings of recovery."""
    logger, handler = logging.getLogger("ottla"), RaisingHandler(is_of_cluster=is_of_cluster)
    level, is_propagating = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = is_propagating


class PowerCut(BaseException):
    """The power was cut. No code catches this exception, so that no code of the old process continues."""

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.owner = owner


class LifeTimers:
    """Timers that die with the process that made them."""

    def __init__(self, timers: ManualTimers) -> None:
        self._timers = timers
        self.is_over = False

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> Any:
        return self._timers.call_later(delay_ms, lambda: None if self.is_over else function())

    def call_soon(self, function: Callable[[], object]) -> None:
        self.call_later(0, function)


class LifeThreads:
    """`ports.Threads`: the work is done in one piece some time later. The event loop gets the result immediately after that, or after
    another delay (`learned_ms`).
    """

    def __init__(self, timers: LifeTimers, chance: random.Random, learned_ms: tuple[int, int] = AT_ONCE_MS) -> None:
        self._timers = timers
        self._chance = chance
        self._learned_ms = learned_ms

    def run(self, work: Callable[[], Result], done: Callable[[Result], object]) -> None:
        def begin() -> None:
            result = work()
            if self._learned_ms == AT_ONCE_MS:
                done(result)
            else:
                self._timers.call_later(self._chance.randint(*self._learned_ms), lambda: done(result))

        self._timers.call_later(self._chance.randint(*THREAD_MS), begin)

    def worker(self, module: str) -> Worker:
        assert module == "ottla.server.record_worker", f"{module} is not simulated"
        return RecordWorker()

    def close(self) -> None:
        pass


class FusedDisk(MemDisk):
    """A disk that cuts the power after a given number of operations."""

    def __init__(self, owner: Any, *directories: str) -> None:
        super().__init__(*directories)
        self._owner = owner
        self.fuse: int | None = None
        self.is_without_power = False

    def burn(self) -> None:
        """Counts an operation; the last one cuts the power."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                self.cut()

    def cut(self) -> NoReturn:
        self.is_without_power = True
        self._owner.life.is_over = True
        raise PowerCut(self._owner)

    def take_fault(self, operation: str, path: str) -> Any:
        """Called before every operation."""
        if self.is_without_power:
            self.cut()
        return super().take_fault(operation, path)
