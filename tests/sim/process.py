"""Runs a simulated client, which is a generator. It yields a call and gets the answer, or None after a timeout (its patience); or it yields
a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from tests.fakes.timers import ManualTimers
from tests.sim.network import Call

PATIENCE_MS = 250

Steps = Generator[Call | int, Any, Any]
"""Yields a call, or a pause in milliseconds."""


class Sender(Protocol):
    """The interface of the world for its processes."""

    timers: ManualTimers

    def send(self, call: Call, answered: Callable[[Any], None]) -> None: ...


class Process:
    """A generator that is resumed by answers, by the end of a pause, or by a timeout."""

    def __init__(self, world: Sender, steps: Steps, ended: Callable[[Any], None], patience_ms: int = PATIENCE_MS) -> None:
        self._world = world
        self._steps = steps
        self._ended = ended
        self._patience_ms = patience_ms
        self._turn = 0
        self.is_dead = False

    def start(self) -> None:
        self._go(self._turn, None)

    def die(self) -> None:
        """Ends the process; requests that it has sent may still arrive."""
        self.is_dead = True
        self._steps.close()

    def sleep(self, ms: int) -> None:
        """Stops the process for a while; it misses the answers that arrive meanwhile."""
        self._turn += 1
        turn = self._turn
        self._world.timers.call_later(ms, lambda: self._go(turn, None))

    def _go(self, turn: int, answer: Any) -> None:
        if self.is_dead or turn != self._turn:
            return
        self._turn += 1
        try:
            step = self._steps.send(answer)
        except StopIteration as stop:
            self.is_dead = True
            self._ended(stop.value)
            return
        turn, timers = self._turn, self._world.timers
        if isinstance(step, Call):
            self._world.send(step, lambda answer: self._go(turn, answer))
            timers.call_later(step.patience_ms or self._patience_ms, lambda: self._go(turn, None))
        else:
            timers.call_later(step, lambda: self._go(turn, None))
