"""The simulated machine of one broker of a cluster: its clock, and the timers of a process that may pause and end. Every machine has its
own clock: monotonic time begins at any value and never decreases; the wall clock has an error and jumps when it is set. A process that is
paused (by a signal or a long garbage collection) executes nothing. Timers that become due meanwhile run late and in order, each as a
separate event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimer, ManualTimers
from tests.sim.machine import LifeTimers


class MachineClock:
    """`ports.Clock` of one machine over the world's clock."""

    def __init__(self, clock: ManualClock, *, offset_ms: int, error_ms: int) -> None:
        self._clock = clock
        self._offset_ms = offset_ms
        self._error_ms = error_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() + self._offset_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self._error_ms

    def nanoseconds(self) -> int:
        return self.monotonic_ms() * 1_000_000

    def jump_wall(self, ms: int) -> None:
        self._error_ms += ms


class ProcessTimers(LifeTimers):
    """`ports.Timers` of one process; `touched` is called before any function of the process runs."""

    def __init__(self, timers: ManualTimers, touched: Callable[[], object]) -> None:
        super().__init__(timers)
        self._touched = touched
        self._late: deque[Callable[[], object]] = deque()
        self.is_paused = False

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> Any:
        def due() -> None:
            if not timer.is_cancelled:
                function()

        timer: ManualTimer = self._timers.call_later(delay_ms, lambda: None if timer.is_cancelled else self.run(due))
        return timer

    def run(self, function: Callable[[], object]) -> None:
        """Runs a function of this process now. If the process is behind, runs it after all late functions."""
        if self.is_over:
            return
        if self.is_paused or self._late:
            self._late.append(function)
        else:
            self._touched()
            function()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._timers.call_soon(self._run_late)

    def _run_late(self) -> None:
        if self.is_over or self.is_paused or not self._late:
            return
        function = self._late.popleft()
        if self._late:
            self._timers.call_soon(self._run_late)
        self._touched()
        function()
