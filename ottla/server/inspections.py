"""Decodes records in a worker process, and keeps the order of appends meanwhile.

A batch of a few kilobytes may hold millions of records, whose decoding takes seconds and would delay every client on the loop. The worker
(`record_worker.py`, started with the first order and ended after a while without work) takes one order at a time. Waiting clients take
turns, so many orders of one client do not delay another client's next order.

While the worker has a batch of a connection, the connection's later appends to the partition wait in a *line*. Each append is an *attempt*:
a function that returns an order for the worker, or None when the append is done. It is called when the attempts before it are done, and
again with each answer of the worker. When a connection closes, its orders and attempts are dropped, so their size is bounded by the memory
of the connection.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.base.ports import Threads, TimerHandle, Timers, Worker, WorkerLost
from ottla.handlers.context import Attempt, ConnectionInfo
from ottla.storage.time_search import TimeAnswers

log = logging.getLogger("ottla.records")

WORKER_MODULE = "ottla.server.record_worker"
REST_MS = 30_000
"""The worker process ends after this many milliseconds without an order."""

Line = tuple[ConnectionInfo, object]
Waiting = tuple[Any, Callable[[Any], object]]


class Inspections:
    """The orders of one broker. The answer None means that the worker process was lost. `times` caches results of look-ups by time."""

    def __init__(self, threads: Threads, timers: Timers) -> None:
        self._threads = threads
        self._timers = timers
        self._worker: Worker | None = None
        self._waiting: dict[ConnectionInfo, deque[Waiting]] = {}
        self._is_asking = False
        self._is_closed = False
        self._rest: TimerHandle | None = None
        self.times = TimeAnswers()
        self.lines: dict[Line, deque[tuple[Any, Attempt]]] = {}

    def defer(self, client: ConnectionInfo, subject: object, order: Any, attempt: Attempt) -> None:
        """Calls `attempt` with the answer to `order`, or with None if `order` is None, after all earlier attempts of this client and
        subject."""
        key = (client, subject)
        line = self.lines.get(key)
        if line is not None:
            line.append((order, attempt))
            return
        self.lines[key] = deque([(order, attempt)])
        self._go_on(key)

    def ask(self, client: ConnectionInfo, order: Any, done: Callable[[Any], object]) -> None:
        """Calls `done` later with the answer, unless the client has disconnected."""
        queue = self._waiting.get(client)
        if queue is None:
            queue = self._waiting[client] = deque()
        client.call_when_closed(self, lambda _: self._forget(client))
        queue.append((order, done))
        if not self._is_asking:
            self._ask_next()

    def close(self) -> None:
        self._is_closed = True
        if self._rest is not None:
            self._rest.cancel()
        if self._worker is not None:
            self._worker.close()

    # Lines

    def _go_on(self, key: Line) -> None:
        """Runs the attempts of a line up to the first that needs the worker."""
        line = self.lines[key]
        while line:
            order, attempt = line[0]
            if order is None:
                order = attempt(None)
            if order is not None:
                self.ask(key[0], order, lambda answer: self._answered(key, answer))
                return
            if self.lines.get(key) is not line:
                return  # the attempt has closed the connection
            line.popleft()
        del self.lines[key]

    def _answered(self, key: Line, answer: Any) -> None:
        line = self.lines.get(key)
        if line is None:
            return
        _, attempt = line[0]
        order = attempt(answer)
        if self.lines.get(key) is not line:
            return
        if order is None:
            line.popleft()
        else:
            line[0] = (order, attempt)
        if line:
            self._go_on(key)
        else:
            del self.lines[key]

    def _forget(self, client: ConnectionInfo) -> None:
        self._waiting.pop(client, None)
        for key in [key for key in self.lines if key[0] is client]:
            del self.lines[key]

    # The worker

    def _ask_next(self) -> None:
        """Gives the worker one order of the client that has waited the longest since its last one."""
        client = next(iter(self._waiting), None)
        if client is None:
            self._rest = self._timers.call_later(REST_MS, self._end_worker)
            return
        order, done = self._waiting[client].popleft()
        self._is_asking = True
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        worker = self._worker = self._worker or self._threads.worker(WORKER_MODULE)
        self._threads.run(lambda: _ask(worker, order), lambda answer: self._take(client, done, answer))

    def _take(self, client: ConnectionInfo, done: Callable[[Any], object], answer: Any) -> None:
        if self._is_closed:
            return
        if answer is None:
            log.warning("the worker process that decodes records ended before it answered; the request that waited for it is refused")
        queue = self._waiting.get(client)
        try:
            if queue is not None:
                done(answer)
        finally:
            if queue is not None and self._waiting.get(client) is queue:
                del self._waiting[client]
                if queue:
                    self._waiting[client] = queue  # The client is now the last one in the queue.
            self._is_asking = False
            self._ask_next()

    def _end_worker(self) -> None:
        self._rest = None
        if self._worker is not None and not self._is_asking:
            self._threads.run(self._worker.rest, lambda _: None)


def _ask(worker: Worker, order: Any) -> Any:
    """Sends an order to the worker process and waits for the answer; runs in a thread. Returns None if the process was lost."""
    try:
        return worker.ask(order)
    except WorkerLost:
        return None
