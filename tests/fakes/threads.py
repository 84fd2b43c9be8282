"""Fake threads whose work is done when the test says so, and a fake of the worker process that checks records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.ports import Worker, WorkerLost
from ottla.storage.record_orders import perform

Result = TypeVar("Result")


class RecordWorker:
    """`ports.Worker` for `server/record_worker.py`, which runs in this process. With `is_lost` it dies at every order."""

    pid = None

    def __init__(self) -> None:
        self.orders: list[Any] = []
        self.rests = 0
        self.is_lost = False
        self.is_closed = False

    def ask(self, order: Any) -> Any:
        self.orders.append(order)
        if self.is_lost:
            raise WorkerLost("it died")
        return perform(order)

    def rest(self) -> None:
        self.rests += 1

    def close(self) -> None:
        self.is_closed = True


class ManualThreads:
    """`ports.Threads`: `run_one` does the oldest piece of work; `run_all` does all work, including new work that results from it."""

    def __init__(self) -> None:
        self.record_worker = RecordWorker()
        self.waiting: deque[Callable[[], object]] = deque()

    def run(self, work: Callable[[], Result], done: Callable[[Result], object]) -> None:
        self.waiting.append(lambda: done(work()))

    def worker(self, module: str) -> Worker:
        assert module == "ottla.server.record_worker", f"{module} is not among the fakes"
        return self.record_worker

    def close(self) -> None:
        pass

    def run_one(self) -> None:
        self.waiting.popleft()()

    def run_all(self) -> None:
        while self.waiting:
            self.run_one()
