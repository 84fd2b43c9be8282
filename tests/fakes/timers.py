"""Timers that run when the test says so, in the order of their deadlines and, among equals, in the order in which they were made.

`run_due` runs the functions that are due now, and the functions that become due through them. `advance` moves the clock from deadline to
deadline, so a function always sees the time for which it was set.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from tests.fakes.clock import ManualClock

RUNS_MAX = 1_000_000  # otherwise a function that sets its timer again without delay would run endlessly


class ManualTimer:
    """`ports.TimerHandle`: a cancelled one stays in the queue and is skipped."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualTimers:
    """`ports.Timers` driven by a `ManualClock`."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock if clock is not None else ManualClock()
        self._queue: list[tuple[float, int, ManualTimer]] = []
        """By deadline and age: no two have the same, so that timers themselves are never compared."""
        self._made = 0

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(function)
        heapq.heappush(self._queue, (self.clock.monotonic_ms() + max(delay_ms, 0), self._made, timer))
        self._made += 1
        return timer

    def call_soon(self, function: Callable[[], object]) -> None:
        self.call_later(0, function)

    def pending(self) -> int:
        """Returns how many functions wait."""
        return sum(not timer.is_cancelled for _, _, timer in self._queue)

    def next_deadline_ms(self) -> float | None:
        while self._queue and self._queue[0][2].is_cancelled:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def run_due(self) -> int:
        """Runs all functions that are due now; returns how many ran."""
        runs = 0
        now_ms = self.clock.monotonic_ms()
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            heapq.heappop(self._queue)[2].function()
            runs += 1
            assert runs < RUNS_MAX, "a timer re-arms itself without delay"
        return runs

    def advance(self, ms: int) -> int:
        """Moves the clock by `ms`. Stops at each deadline on the way and runs the functions that are due."""
        end_ms = self.clock.monotonic_ms() + ms
        runs = self.run_due()
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.clock.advance(math.ceil(deadline_ms) - self.clock.monotonic_ms())
            runs += self.run_due()
            assert runs < RUNS_MAX, "timers re-arm themselves without delay"
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        return runs

    def advance_one(self) -> bool:
        """Moves the clock to the next deadline and runs one function that is due; returns False if no function waits."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None:
            return False
        self.clock.advance(max(0, math.ceil(deadline_ms) - self.clock.monotonic_ms()))
        heapq.heappop(self._queue)[2].function()
        return True

    def advance_to_next(self) -> bool:
        """Moves the clock to the next deadline and runs all functions that are due; returns False if no function waits."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None:
            return False
        self.clock.advance(max(0, math.ceil(deadline_ms) - self.clock.monotonic_ms()))
        self.run_due()
        return True
