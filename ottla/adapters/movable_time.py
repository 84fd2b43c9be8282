"""A clock and timers that a test moves. If a test fixture has started the broker with a control socket, the broker uses them as
`Ports.ages`, the clock and timers for the expiry of records, sessions and tokens. Time passes as usual until it is moved or frozen.
`advance` makes a span of time pass immediately: the timers that are due in the span are called in the order of their deadlines, each at its
own time. The span is divided into at most about `STEPS` steps, and a timer that is set during a step is called in the next step at the
earliest. Otherwise a repeating timer would be called a hundred thousand times for a week. After each step, work in threads is awaited, for
at most `SETTLE_SECONDS_MAX`.

Only the process that starts the broker can give orders, through a socket that the broker inherits (`TIME_VARIABLE`). An order is a line
with a JSON object: `{"advance_ms": 1000}`, `{"freeze": true}`, `{"freeze": false}` or `{}`. The answer is a line with `wall_ms`, the time,
and `state`, the state for the next start of the broker, or with an `error`.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import monotonic_ns, perf_counter_ns, time_ns
from typing import Any, TypeVar

from ottla.adapters.threads import LoopThreads
from ottla.adapters.worker_process import WorkerProcess
from ottla.base.broker_ports import TIME_VARIABLE, Ages

T = TypeVar("T")

STEPS = 64
PASSES = 3
"""Iterations of the loop after a step, for callbacks that its timers have scheduled."""
SETTLE_SECONDS_MAX = 10.0
"""How long a step waits for its work in threads."""
TEN_YEARS_MS = 10 * 366 * 86_400_000


class LastingWorker(WorkerProcess):
    """Does not rest. A broker lets its worker rest after rounds without work, which an advance has in milliseconds; the next work would
    then wait for another start of a process."""

    def rest(self) -> None:
        if self._is_closed or self._is_asked:  # at the end, or the process has failed
            super().rest()


class CountedThreads(LoopThreads):
    """`LoopThreads` that count the work whose result has not been delivered."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        super().__init__(loop)
        self.pending = 0
        self._delivered: asyncio.Future[None] | None = None
        """Done when all results are delivered; `settle` waits for it."""

    def run(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        self.pending += not self._is_closed
        super().run(work, done)

    def worker(self, module: str) -> LastingWorker:
        return LastingWorker(module)

    def _deliver(self, finished: Future[Any], done: Callable[[Any], object]) -> None:
        self.pending -= 1
        try:
            super()._deliver(finished, done)
        finally:
            if not self.pending:
                self._wake()

    async def settle(self, seconds_max: float) -> None:
        """Waits until all results are delivered, at most `seconds_max`. It does not poll, because an event loop that polls takes the time
        of the threads that it waits for."""
        if not self.pending:
            return
        self._delivered = self._loop.create_future()
        limit = self._loop.call_later(seconds_max, self._wake)
        try:
            await self._delivered
        finally:
            limit.cancel()
            self._delivered = None

    def _wake(self) -> None:
        if self._delivered is not None and not self._delivered.done():
            self._delivered.set_result(None)


class _Timer:
    """`ports.TimerHandle`."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self.function: Callable[[], object] | None = function

    def cancel(self) -> None:
        self.function = None


class MovableTime:
    """`ports.Clock` and `ports.Timers` (`ages`)."""

    nanoseconds = staticmethod(perf_counter_ns)

    def __init__(self, loop: AbstractEventLoop, threads: CountedThreads, state: Sequence[int | None] = (0, None)) -> None:
        """`state` is the clock's state at the end of an earlier process."""
        self._loop = loop
        self._threads = threads
        self._wall_ahead_ms = (time_ns() - monotonic_ns()) // 1_000_000
        self._moved_ms: int = state[0] or 0
        """How far this clock is ahead of the machine's, or of `_stands_at_ms` while it is frozen, in milliseconds."""
        self._stands_at_ms: int | None = state[1]
        """The machine's monotonic time at which this clock was frozen; None while it runs."""
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timers_set = 0
        self._handle: asyncio.TimerHandle | None = None
        self._serving: asyncio.Task[None] | None = None

    @classmethod
    def from_environment(cls, loop: AbstractEventLoop, threads: CountedThreads) -> MovableTime:
        """Returns the time that `TIME_VARIABLE` describes: JSON, the descriptor of the socket and the state of the clock. If the variable
        has no state, the process waits until the first line of the socket has it. From then on this object serves orders.
        """
        descriptor, state = json.loads(os.environ[TIME_VARIABLE])
        control = socket.socket(fileno=descriptor)
        made = cls(loop, threads, state if state is not None else _first_state(control))
        made._serving = loop.create_task(made.serve(control))
        return made

    @property
    def ages(self) -> Ages:
        return Ages(self, self)

    @property
    def is_frozen(self) -> bool:
        return self._stands_at_ms is not None

    # `ports.Clock`

    def monotonic_ms(self) -> int:
        stands_at_ms = self._stands_at_ms
        return self._moved_ms + (monotonic_ns() // 1_000_000 if stands_at_ms is None else stands_at_ms)

    def wall_ms(self) -> int:
        return self._wall_ahead_ms + self.monotonic_ms()

    # `ports.Timers`

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> _Timer:
        timer = _Timer(function)
        self._timers_set += 1
        heapq.heappush(self._timers, (self.monotonic_ms() + max(delay_ms, 0), self._timers_set, timer))
        if self._timers[0][2] is timer:
            self._wait()
        return timer

    def call_soon(self, function: Callable[[], object]) -> None:
        self._loop.call_soon(function)

    # Moving

    def freeze(self, *, is_frozen: bool = True) -> None:
        """Stops the clock, or starts it again at the same time."""
        machine_ms = monotonic_ns() // 1_000_000
        if is_frozen and self._stands_at_ms is None:
            self._stands_at_ms = machine_ms
        elif not is_frozen and self._stands_at_ms is not None:
            self._moved_ms -= machine_ms - self._stands_at_ms
            self._stands_at_ms = None
        self._wait()

    async def advance(self, span_ms: int) -> None:
        """Lets a span of time pass at once (see the module). The clock is frozen meanwhile."""
        was_frozen = self.is_frozen
        self.freeze()
        try:
            end_ms = self.monotonic_ms() + span_ms
            while self.monotonic_ms() < end_ms:
                next_due_ms = self._timers[0][0] if self._timers else end_ms
                now_ms = self.monotonic_ms()
                self._step(int(min(end_ms, max(next_due_ms + 1, now_ms + span_ms // STEPS, now_ms + 1))))
                await self._settle()
        finally:
            self.freeze(is_frozen=was_frozen)

    def _step(self, to_ms: int) -> None:
        """Schedules what is due, in order, and the end of the step."""
        while self._timers and self._timers[0][0] <= to_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._loop.call_soon(self._fire, int(due_ms), timer)
        self._loop.call_soon(self._reach, to_ms)

    def _fire(self, due_ms: int, timer: _Timer) -> None:
        self._reach(due_ms)
        if timer.function is not None:
            timer.function()

    def _reach(self, to_ms: int) -> None:
        if self.is_frozen:
            self._moved_ms += max(to_ms - self.monotonic_ms(), 0)

    async def _settle(self) -> None:
        """Waits for callbacks and for work in threads. It waits for the work of other requests too, so the wait has a limit."""
        for _ in range(PASSES):
            await asyncio.sleep(0)
        await self._threads.settle(SETTLE_SECONDS_MAX)

    # While the clock runs

    def _wait(self) -> None:
        """Waits for the next timer with a timer of the loop."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._timers and not self.is_frozen:
            self._handle = self._loop.call_later(max(self._timers[0][0] - self.monotonic_ms(), 0) / 1000, self._run_due)

    def _run_due(self) -> None:
        now_ms = self.monotonic_ms()
        while self._timers and self._timers[0][0] <= now_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._loop.call_soon(self._fire, int(due_ms), timer)
        self._wait()

    # Orders

    async def serve(self, control: socket.socket) -> None:
        """Carries out orders until the other end is closed."""
        reader, writer = await asyncio.open_connection(sock=control)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, object]:
        asked = json.loads(line)
        span_ms = asked.get("advance_ms", 0)
        if not 0 <= span_ms <= TEN_YEARS_MS:
            return {"error": f"cannot advance by {span_ms} ms: time only moves forward, at most ten years at once"}
        if "freeze" in asked:
            self.freeze(is_frozen=asked["freeze"])
        if span_ms:
            await self.advance(span_ms)
        return {"wall_ms": self.wall_ms(), "state": [self._moved_ms, self._stands_at_ms]}


def _first_state(control: socket.socket) -> Sequence[int | None]:
    """Waits for the line with the clock's state. Ends the process if the other end is closed instead."""
    with control.makefile("rb", buffering=0) as file:
        line = file.readline()
    if not line:
        raise SystemExit(0)
    return list(json.loads(line))
